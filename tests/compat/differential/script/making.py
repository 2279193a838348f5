"""What questions need beforehand: topics that are there, records in them, members of a group."""

import time

from gateway.kafka.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.compat.differential.session import Session
from tests.gateway.kafka.batches import batch

WAIT_S = 20.0


def make_topic(session: Session, name: str, partitions: int = 1, **config: str) -> str:
    """Makes a topic and waits until the broker leads each partition. Returns the topic's name."""
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in config.items()]
    answer = session.send(CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], settings)], 20_000), 5)
    assert answer.topics[0].error_code == 0, answer
    latest = [ListOffsetsPartition(partition, timestamp=-1) for partition in range(partitions)]
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = session.send(ListOffsetsRequest(topics=[ListOffsetsTopic(name, latest)]), 5)
        if not any(partition.error_code for partition in answer.topics[0].partitions):
            return name
        assert time.monotonic() < deadline, f"no leader for {name}"
        time.sleep(0.02)


def settle(session: Session) -> None:
    """Waits until the broker shows what was changed before: changes arrive in order, so a new topic is the sign."""
    make_topic(session, f"settled-{len(session.answers)}")


def produce_request(
    topic: str, records: bytes | bytearray | None, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    data = [PartitionProduceData(partition, records)]
    return ProduceRequest(None, acks, 10_000, [TopicProduceData(name=topic, partition_data=data)])


def fill(session: Session, topic: str, *values: bytes, now_ms: int) -> None:
    """Each value as a batch of its own, a second apart."""
    for at, value in enumerate(values):
        answer = session.send(produce_request(topic, batch(value, timestamp=now_ms + at * 1000)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
