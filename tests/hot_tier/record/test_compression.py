"""The codecs: round trips, both snappy framings, whole frames only, and caps that hold while decompressing."""

import threading
import time
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.errors import BatchTooLarge, CorruptBatch, TierlogError, UnsupportedBatch
from hot_tier.record.compression import Codec, compress, decompress, most_parts
from tests.hot_tier.record.samples import codecs

COMPRESSING = [codec for codec in Codec if codec]
XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
SAMPLE = b"".join(b"event %d at %d;" % (i % 7, i * i) for i in range(12_000))


@given(codecs, st.binary(max_size=200), st.integers(1, 400))
def test_round_trip(codec: Codec, seed: bytes, times: int) -> None:
    data = seed * times
    frame = compress(codec, data)
    assert bytes(decompress(codec, frame, len(data))) == data
    assert bytes(decompress(codec, memoryview(bytearray(frame)), len(data) + 1)) == data


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_over_the_cap_is_too_large(codec: Codec) -> None:
    frame = compress(codec, SAMPLE)
    assert bytes(decompress(codec, frame, len(SAMPLE))) == SAMPLE
    for cap in (len(SAMPLE) - 1, len(SAMPLE) // 2, 1, 0):
        with pytest.raises(BatchTooLarge):
            decompress(codec, frame, cap)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_torn_frame_is_corrupt_wherever_it_is_torn(codec: Codec) -> None:
    frame = bytes(compress(codec, SAMPLE))
    cuts = {*range(200), *range(len(frame) - 200, len(frame)), *range(0, len(frame), 997)}
    if codec is Codec.SNAPPY:
        # Its blocks know their lengths, but nothing says how many there are: between them is a whole stream.
        blocks = [16]
        while blocks[-1] < len(frame):
            blocks.append(blocks[-1] + 4 + int.from_bytes(frame[blocks[-1] : blocks[-1] + 4], "big"))
        cuts -= set(blocks)
    for cut in sorted(cuts):
        with pytest.raises(CorruptBatch):
            decompress(codec, frame[:cut], len(SAMPLE))
    assert bytes(decompress(codec, frame, len(SAMPLE))) == SAMPLE, "an error must not spoil the next frame"


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_after_the_frame_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, bytes(compress(codec, SAMPLE)) + b"\x00", len(SAMPLE) * 2)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedBatch):
        decompress(codec, b"", 10)
    with pytest.raises(UnsupportedBatch):
        compress(codec, b"")


def test_raw_snappy_of_librdkafka() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(SAMPLE)), len(SAMPLE))) == SAMPLE


def test_a_snappy_length_nothing_could_fill_is_corrupt_before_allocating() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"\x00" * 20
    with pytest.raises(CorruptBatch, match="claims to hold"):
        decompress(Codec.SNAPPY, claims_4_gib, 1 << 40)


def test_gzip_members_and_zstd_frames_may_follow_each_other() -> None:
    halves = SAMPLE[:1000], SAMPLE[1000:]
    gzip = b"".join(zlib.compress(half, wbits=31) for half in halves)
    assert bytes(decompress(Codec.GZIP, gzip, len(SAMPLE))) == SAMPLE
    skippable = bytes.fromhex("532a4d18 03000000 010203")
    stream = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    zstd = zstandard.ZstdCompressor().compress(halves[0]) + skippable + stream.compress(halves[1])
    assert bytes(decompress(Codec.ZSTD, zstd, len(SAMPLE))) == SAMPLE
    for codec, frames in ((Codec.GZIP, gzip), (Codec.ZSTD, zstd)):
        with pytest.raises(BatchTooLarge):
            decompress(codec, frames, len(SAMPLE) - 1)


def bomb(codec: Codec, size: int) -> bytes:
    chunk = bytes(1 << 20)
    if codec is Codec.ZSTD:
        stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    elif codec is Codec.GZIP:
        stream = zlib.compressobj(9, wbits=31)
    else:
        return bytes(compress(codec, bytes(size)))
    return b"".join([stream.compress(chunk) for _ in range(size >> 20)]) + stream.flush()


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_memory_than_the_cap(codec: Codec) -> None:
    cap = 4 << 20
    frame = bomb(codec, 256 << 20)
    assert len(frame) < 16 << 20
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            decompress(codec, frame, cap)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * cap


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(100_000)))
    assert frame[4] >> 6 == 2, "the content size takes four bytes"
    for claimed in (99_999, 100_001, 2**32 - 1):
        lying = frame.copy()
        at = 5 if frame[4] & 0x20 else 6
        lying[at : at + 4] = claimed.to_bytes(4, "little")
        with pytest.raises((CorruptBatch, BatchTooLarge)):
            decompress(Codec.ZSTD, lying, 1 << 20)


@given(codecs, st.binary(max_size=300), st.integers(0, 1000))
def test_any_bytes_give_bytes_within_the_cap_or_our_error(codec: Codec, data: bytes, cap: int) -> None:
    try:
        assert len(decompress(codec, data, cap)) <= cap
    except TierlogError:
        pass


@given(st.sampled_from(COMPRESSING), st.data())
def test_a_damaged_frame_gives_bytes_within_the_cap_or_our_error(codec: Codec, data: st.DataObject) -> None:
    frame = bytearray(compress(codec, SAMPLE[:2000]))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, frame, 5000)) <= 5000
    except TierlogError:
        pass


def test_threads_do_not_share_a_context() -> None:
    frames = {codec: bytes(compress(codec, SAMPLE)) for codec in Codec}
    wrong: list[object] = []

    def work() -> None:
        for _ in range(20):
            for codec, frame in frames.items():
                if bytes(decompress(codec, frame, len(SAMPLE))) != SAMPLE:
                    wrong.append(codec)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def many_parts(codec: Codec, count: int) -> bytes:
    match codec:
        case Codec.GZIP:
            return zlib.compress(b"", wbits=31) * count
        case Codec.SNAPPY:
            return XERIAL_HEADER + b"\x00\x00\x00\x01\x00" * count
        case _:
            return zstandard.ZstdCompressor().compress(b"") * count


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_the_number_of_parts_is_bounded_by_the_cap(codec: Codec) -> None:
    cap = 1 << 20
    assert bytes(decompress(codec, many_parts(codec, most_parts(cap) // 2), cap)) == b""
    with pytest.raises(BatchTooLarge):
        decompress(codec, many_parts(codec, most_parts(cap) + 1), cap)


def test_empty_blocks_inside_a_zstd_frame_and_frames_to_skip_count_too() -> None:
    empty_block, last_block = b"\x00\x00\x00", b"\x01\x00\x00"
    blocks = b"\x28\xb5\x2f\xfd\x00\x58" + empty_block * 300_000 + last_block
    skipped = bytes.fromhex("532a4d18 00000000") * 100_000
    for frame in (blocks, skipped):
        with pytest.raises(BatchTooLarge):
            decompress(Codec.ZSTD, frame, 1 << 20)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_the_time_grows_with_the_number_of_parts_and_no_faster(codec: Codec) -> None:
    def fastest_s(count: int) -> float:
        data = many_parts(codec, count)
        times = []
        for _ in range(5):
            began = time.process_time()
            decompress(codec, data, 1 << 30)
            times.append(time.process_time() - began)
        return min(times)

    # Of sixteen times as many, quadratic time would take 256 times as long.
    assert fastest_s(48_000) < 64 * max(fastest_s(3_000), 0.0005)


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=12))
def test_gzip_members_of_any_size_are_joined(members: list[bytes]) -> None:
    data = b"".join(zlib.compress(member, wbits=31) for member in members)
    assert bytes(decompress(Codec.GZIP, data, 1 << 20)) == b"".join(members)


@pytest.mark.parametrize("store_size", [True, False])
def test_a_bad_lz4_frame_leaves_the_next_one_alone(store_size: bool) -> None:
    data = b"hello world " * 50
    bad, good = lz4.frame.compress(data, store_size=store_size), lz4.frame.compress(data, store_size=False)
    for length in range(len(bad)):
        with pytest.raises(CorruptBatch):
            decompress(Codec.LZ4, bad[:length], 1 << 20)
        assert bytes(decompress(Codec.LZ4, good, 1 << 20)) == data
