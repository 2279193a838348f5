"""The CRC of many batches at once finds what looking at each of them finds."""

import os
import random

import pytest

from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.scan import sound_bytes
from hot_tier.record.batch import assign, iter_headers
from hot_tier.record.crc import crc32c
from hot_tier.record.records import NewRecord, encode_records

HISTORY = LeaderEpochs([(1, 0), (3, 20)]).history()
SIZES = (0, 1, 7, 100, 4_000, 70_000)


def batches(count: int, chance: random.Random, *, gaps: bool) -> tuple[bytearray, list[int], int]:
    """The bytes, where batches begin and the last one ends, and the offset behind them."""
    data, borders, offset = bytearray(), [0], 0
    for _ in range(count):
        one = bytearray(encode_records([NewRecord(1, b"k", os.urandom(chance.choice(SIZES)))]))
        offset += chance.randrange(3) if gaps else 0
        assign(one, offset, 1 if offset < 20 else 3)
        offset += 1
        data += one
        borders.append(len(data))
    return data, borders, offset


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_first_wrong_bit_ends_them(seed: int, gaps: bool) -> None:
    chance = random.Random(seed)
    data, borders, end = batches(40, chance, gaps=gaps)

    def sound() -> int:
        return sound_bytes(memoryview(data), 0, end, dense=not gaps, history=HISTORY)

    assert sound() == len(data)
    for _ in range(300):
        number = chance.randrange(len(borders) - 1)
        # What no CRC covers may fit in where there are gaps: `heads` proves it there.
        first = borders[number] + 17
        at = chance.randrange(first, min(first + chance.choice((4, 60, 1 << 20)), borders[number + 1]))
        bit = 1 << chance.randrange(8)
        data[at] ^= bit
        assert sound() == borders[number], f"bit {bit} of byte {at - borders[number]} of batch {number}"
        data[at] ^= bit
    assert sound() == len(data)


def test_every_bit_of_heads_in_a_dense_log() -> None:
    data, borders, end = batches(5, random.Random(7), gaps=False)
    for bit in range(8 * 61):
        data[borders[2] + bit // 8] ^= 1 << bit % 8
        found = sound_bytes(memoryview(data), 0, end, dense=True, history=HISTORY)
        assert found == borders[2], f"bit {bit}"
        data[borders[2] + bit // 8] ^= 1 << bit % 8


def test_what_ends_early_is_left_out() -> None:
    data, borders, end = batches(6, random.Random(1), gaps=False)
    for cut in (borders[3] - 1, borders[3] + 20, borders[3] + 61):
        expected = max(border for border in borders if border <= cut)
        assert sound_bytes(memoryview(data)[:cut], 0, end, dense=True, history=HISTORY) == expected
    assert sound_bytes(memoryview(data), 0, end - 1, dense=True, history=HISTORY) == borders[5]
    assert sound_bytes(memoryview(b""), 0, 0, dense=True, history=HISTORY) == 0


def test_two_wrong_batches_do_not_make_a_right_one() -> None:
    data, borders, end = batches(4, random.Random(3), gaps=False)
    for number in (1, 2):
        data[borders[number + 1] - 1] ^= 1
    assert sound_bytes(memoryview(data), 0, end, dense=True, history=HISTORY) == borders[1]
    whole = [crc32c(data[at + 21 : at + header.size]) == header.crc for at, header in iter_headers(data)]
    assert whole == [True, False, False, True]
