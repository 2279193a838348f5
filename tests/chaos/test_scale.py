"""A thousand topics of four partitions: made, used, restarted within seconds; file descriptors bounded."""

import time

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from .conftest import TARGET

TOPICS, PARTITIONS, USED = 1000, 4, 400
MAX_OPEN_FILES = 512
OTHER_DESCRIPTORS = 128  # sockets, the metadata store, the loop


@pytest.mark.timeout(300)
@pytest.mark.skipif(TARGET != "tierlog", reason="a bound of tierlog's own")
def test_a_thousand_topics(make_broker, capsys):
    broker = make_broker(settings={"TIERLOG_LOG__MAX_OPEN_FILES": str(MAX_OPEN_FILES)})
    took: dict[str, float] = {}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [f"scale-{n:04d}" for n in range(TOPICS)]

    began = time.monotonic()
    for some in (names[n : n + 100] for n in range(0, TOPICS, 100)):
        for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in some]).values():
            future.result(60)
    took["create"] = time.monotonic() - began
    rss_idle = broker.rss_bytes()

    def produce(round_: int) -> float:
        errors: list[object] = []
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 5})
        began = time.monotonic()
        for name in names[:USED]:
            for partition in range(PARTITIONS):
                producer.produce(
                    name,
                    b"%d" % round_,
                    partition=partition,
                    on_delivery=lambda error, _: errors.append(error) if error else None,
                )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert errors == []
        return time.monotonic() - began

    took["produce"] = produce(0)
    descriptors = broker.open_files()
    assert descriptors <= MAX_OPEN_FILES + OTHER_DESCRIPTORS

    for how in ("stop", "kill"):
        getattr(broker, how)()
        broker.start()
        took[f"start after {how}"] = broker.start_seconds
        assert broker.start_seconds < 20
        listed = admin.list_topics(timeout=30).topics
        assert {len(listed[name].partitions) for name in names} == {PARTITIONS}
    took["produce again"] = produce(1)
    assert broker.open_files() <= MAX_OPEN_FILES + OTHER_DESCRIPTORS

    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "scale"})
    for name in (names[0], names[USED // 2], names[USED - 1]):
        for partition in range(PARTITIONS):
            assert consumer.get_watermark_offsets(ck.TopicPartition(name, partition), timeout=10) == (0, 2)
    consumer.close()
    with capsys.disabled():
        times = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items())
        memory = f"{rss_idle >> 20} MB after creation, {broker.rss_bytes() >> 20} MB at the end"
        print(f"\n  {TOPICS} topics × {PARTITIONS}: {times}; {descriptors} descriptors; {memory}")
