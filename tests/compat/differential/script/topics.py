"""Topics: made, described, grown, emptied, deleted; and everything that is wrong with asking for it."""

import uuid

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from gateway.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.compat.differential.session import Session

from .making import make_topic

NOBODY = uuid.UUID("11111111-2222-3333-4444-555555555555")
BAD_NAMES = ["", ".", "..", "no/slashes", "no spaces", "x" * 250, "ümlaut"]


def run(session: Session) -> None:
    _create(session)
    _metadata(session)
    _partitions(session)
    _delete(session)


def _create(session: Session) -> None:
    for v in session.each(ApiKey.CREATE_TOPICS):

        def create(label: str, *topics: CreatableTopic, only_check: bool = False, version: int = v) -> None:
            session.ask(label, CreateTopicsRequest(list(topics), 20_000, only_check), version)

        name = f"create-{v}"
        create("a topic", CreatableTopic(name, 3, 1))
        create("again", CreatableTopic(name, 3, 1))
        create("defaults", CreatableTopic(f"{name}-defaults", -1, -1))
        create("only checked", CreatableTopic(f"{name}-checked", 2, 1), only_check=True)
        create("checked twice", CreatableTopic(f"{name}-checked", 2, 1), only_check=True)
        create("no topics")
        create("the same name twice", CreatableTopic(f"{name}-twice", 1, 1), CreatableTopic(f"{name}-twice", 2, 1))
        create("no partitions", CreatableTopic(f"{name}-none", 0, 1))
        create("minus two partitions", CreatableTopic(f"{name}-minus", -2, 1))
        create("replication 0", CreatableTopic(f"{name}-r0", 1, 0))
        create("replication 9", CreatableTopic(f"{name}-r9", 1, 9))
        for number, bad in enumerate(BAD_NAMES):
            create(f"bad name {number}", CreatableTopic(bad, 1, 1))
        # Kafka takes both for one metric and refuses the second.
        create("a dot", CreatableTopic(f"{name}.dot", 1, 1))
        create("an underscore in the place of the dot", CreatableTopic(f"{name}_dot", 1, 1))
        create(
            "one good, one bad",
            CreatableTopic(f"{name}-good", 1, 1),
            CreatableTopic("no/slashes", 1, 1),
        )
        create("config", CreatableTopic(f"{name}-config", 1, 1, [], [CreatableTopicConfig("retention.ms", "3600000")]))
        create("bad value", CreatableTopic(f"{name}-bad", 1, 1, [], [CreatableTopicConfig("retention.ms", "soon")]))
        create("null value", CreatableTopic(f"{name}-null", 1, 1, [], [CreatableTopicConfig("retention.ms", None)]))
        create("unknown setting", CreatableTopic(f"{name}-unknown", 1, 1, [], [CreatableTopicConfig("no.such", "1")]))
        create(
            "a setting twice",
            CreatableTopic(
                f"{name}-again",
                1,
                1,
                [],
                [CreatableTopicConfig("retention.ms", "1"), CreatableTopicConfig("retention.ms", "2")],
            ),
        )
        place = CreatableReplicaAssignment
        create("placed", CreatableTopic(f"{name}-placed", -1, -1, [place(0, [1]), place(1, [1])]))
        create("placed and counted", CreatableTopic(f"{name}-both", 2, 1, [place(0, [1])]))
        create("placed nowhere", CreatableTopic(f"{name}-nowhere", -1, -1, [place(0, [99])]))
        create("placed with a hole", CreatableTopic(f"{name}-hole", -1, -1, [place(0, [1]), place(2, [1])]))
        create("placed twice on one", CreatableTopic(f"{name}-double", -1, -1, [place(0, [1, 1])]))
        create("placed on none", CreatableTopic(f"{name}-empty", -1, -1, [place(0, [])]))


def _metadata(session: Session) -> None:
    known = make_topic(session, "metadata", 2)
    for v in session.each(ApiKey.METADATA):

        def ask(label: str, topics: list[MetadataRequestTopic] | None, *, auto: bool = False, version: int = v) -> None:
            session.ask(label, MetadataRequest(topics, auto, True, True), version)

        topic = MetadataRequestTopic
        if v >= 1:
            ask("no topics", [])
        ask("one topic", [topic(name=known)])
        if v >= 4:
            ask("unknown", [topic(name=f"nobody-{v}")])
            ask("known and unknown", [topic(name=known), topic(name=f"nobody-{v}")])
            ask("a name twice", [topic(name=known), topic(name=known)])
            ask("made by asking", [topic(name=f"auto-{v}")], auto=True)
            for number, bad in enumerate(BAD_NAMES):
                ask(f"bad name {number}", [topic(name=bad)])
                ask(f"bad name {number}, to be made", [topic(name=bad)], auto=True)
        if v >= 12:
            ask("by id", [topic(session.topic_id(known), None)])
            ask("by an unknown id", [topic(NOBODY, None)])
        elif v >= 10:
            ask("by id", [topic(session.topic_id(known), "")])
            ask("by id and no name", [topic(session.topic_id(known), None)])


def _partitions(session: Session) -> None:
    for v in session.each(ApiKey.CREATE_PARTITIONS):
        name = make_topic(session, f"grow-{v}", 2)

        def grow(
            label: str, *topics: CreatePartitionsTopic, only_check: bool = False, version: int = v, wanted: str = name
        ) -> None:
            session.ask(label, CreatePartitionsRequest(list(topics), 20_000, only_check), version)

        place = CreatePartitionsAssignment
        grow("only checked", CreatePartitionsTopic(name, 4, None), only_check=True)
        grow("to four", CreatePartitionsTopic(name, 4, None))
        grow("to the same", CreatePartitionsTopic(name, 4, None))
        grow("to fewer", CreatePartitionsTopic(name, 1, None))
        grow("to minus one", CreatePartitionsTopic(name, -1, None))
        grow("unknown", CreatePartitionsTopic(f"nobody-grows-{v}", 4, None))
        grow("twice in one request", CreatePartitionsTopic(name, 5, None), CreatePartitionsTopic(name, 6, None))
        grow("placed", CreatePartitionsTopic(name, 7, [place([1])] * (7 - 4)))
        grow("too few places", CreatePartitionsTopic(name, 12, [place([1])]))
        grow("placed nowhere", CreatePartitionsTopic(name, 8, [place([99])]))
        grow("nothing")


def _delete(session: Session) -> None:
    for v in session.each(ApiKey.DELETE_TOPICS):
        names = [make_topic(session, f"delete-{v}-{at}", 1) for at in range(3)]

        def delete(label: str, *wanted: str, version: int = v) -> None:
            if version >= 6:
                request = DeleteTopicsRequest([DeleteTopicState(name) for name in wanted], [], 20_000)
            else:
                request = DeleteTopicsRequest([], list(wanted), 20_000)
            session.ask(label, request, version)

        delete("one", names[0])
        delete("it again", names[0])
        delete("nothing")
        delete("twice in one request", names[1], names[1])
        delete("known and unknown", names[2], f"nobody-deleted-{v}")
        if v >= 6:
            known = make_topic(session, f"delete-{v}-id", 1)
            session.ask("by id", DeleteTopicsRequest([DeleteTopicState(None, session.topic_id(known))], [], 20_000), v)
            session.ask("by an unknown id", DeleteTopicsRequest([DeleteTopicState(None, NOBODY)], [], 20_000), v)
            session.ask("by nothing", DeleteTopicsRequest([DeleteTopicState(None)], [], 20_000), v)
