"""Keys land where Kafka's own clients put them; keyless messages are spread evenly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from gateway.http.partitioner import StickySpread, murmur2, partition_for_key


@given(st.binary(max_size=300))
def test_murmur2_is_kafkas(key: bytes) -> None:
    assert murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # The vectors of Kafka's own UtilsTest.testMurmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_matches_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_key_stays_in_its_partition() -> None:
    assert [partition_for_key(b"abc", n) for n in (1, 7, 10)] == [0, 479470107 % 7, 479470107 % 10]


def test_keyless_messages_go_round_when_no_batch_is_open() -> None:
    spread = StickySpread(lambda topic, partition: False)
    assert [spread.next("t", 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert spread.next("other", 3) == 0


def test_keyless_messages_stick_to_an_open_batch() -> None:
    opened = {("t", 0)}
    spread = StickySpread(lambda topic, partition: (topic, partition) in opened)
    assert [spread.next("t", 3) for _ in range(4)] == [0, 0, 0, 0]
    opened.clear()
    assert spread.next("t", 3) == 1


def test_a_topic_that_shrank_to_fewer_partitions_is_followed() -> None:
    spread = StickySpread(lambda topic, partition: True)
    for _ in range(5):
        spread.next("t", 8)
    assert spread.next("t", 1) == 0
