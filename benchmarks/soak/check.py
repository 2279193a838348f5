"""What must hold when the load has ended: every acknowledged record that retention has kept is there as it was sent."""

import time

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from benchmarks.soak.clients import ARCHIVED, COMPACTED, HEAD, Acked
from benchmarks.soak.pace import PARTITIONS, Pace

READ_TIMEOUT_S = 300


def stop_retention(bootstrap: str, pace: Pace) -> int:
    """Stops retention, so that nothing is deleted during the check. Waits until a round that has begun is over. Returns
    the time in milliseconds."""
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, ARCHIVED, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)
    stopped_ms = time.time_ns() // 1_000_000
    time.sleep(2 * pace.settings()["archive.check_ms"] / 1000)
    return stopped_ms


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes | None, int]]]:
    """Returns offset, key and number of every record, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "auto.offset.reset": "error"})
    found: dict[int, list[tuple[int, bytes | None, int]]] = {number: [] for number in range(partitions)}
    bounds = {number: consumer.get_watermark_offsets(TopicPartition(topic, number), 60) for number in found}
    consumer.assign([TopicPartition(topic, number, low) for number, (low, _) in bounds.items()])
    deadline = time.monotonic() + READ_TIMEOUT_S
    left = {number for number, (low, high) in bounds.items() if low < high}
    while left:
        assert time.monotonic() < deadline, f"partitions {sorted(left)} of {topic} are not read in {READ_TIMEOUT_S} s"
        for message in consumer.consume(5000, 0.5):
            assert message.error() is None, message.error()
            partition = message.partition()
            found[partition].append((message.offset(), message.key(), HEAD.unpack_from(message.value())[0]))
            if message.offset() + 1 >= bounds[partition][1]:
                left.discard(partition)
    consumer.close()
    return found


def check(bootstrap: str, acked: Acked, pace: Pace) -> dict[str, int]:
    """Returns how much was read. Raises AssertionError that says what is wrong."""
    stopped_ms = stop_retention(bootstrap, pace)
    kept = removed = 0
    for partition, records in read_all(bootstrap, ARCHIVED, PARTITIONS).items():
        numbers = acked.numbers[partition]
        begin = records[0][0] if records else len(numbers)
        expected = list(enumerate(numbers))[begin:]
        assert [(offset, number) for offset, _, number in records] == expected, (
            f"partition {partition} differs from {begin} on"
        )
        if begin:
            age_ms = stopped_ms - acked.sent_ms[partition][begin - 1]
            assert age_ms >= pace.retention_ms, (
                f"partition {partition}: removed after {age_ms} of {pace.retention_ms} ms"
            )
        kept, removed = kept + len(records), removed + begin
    newest = {key: number for _, key, number in read_all(bootstrap, COMPACTED, 1)[0]}
    assert newest == acked.by_key, "the compacted topic does not hold the newest of each key"
    return {"kept": kept, "removed by retention": removed, "keys": len(newest)}
