"""Topics, settings and the cluster, through each client's own administration calls."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from benchmarks.process import wait_for

from .clients.face import Message, Partition, ServerError


def eventually(condition: Callable[[], bool]) -> None:
    wait_for(condition, "the change to be seen", 15)


def refused_with(call: Callable[[], object]) -> int:
    with pytest.raises(ServerError) as refused:
        call()
    return refused.value.code


def test_create_list_delete(client):
    name = f"compat-{uuid4().hex[:12]}"
    client.create_topic(name, 3)
    eventually(lambda: client.topics().get(name) == 3)
    assert refused_with(lambda: client.create_topic(name, 3)) == 36  # TOPIC_ALREADY_EXISTS
    client.delete_topic(name)
    eventually(lambda: name not in client.topics())
    assert refused_with(lambda: client.delete_topic(name)) == 3  # UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "partitions", "config", "code"),
    [
        ("no/slashes", 1, {}, 17),
        ("..", 1, {}, 17),
        ("x" * 250, 1, {}, 17),
        ("compat-none", 0, {}, 37),
        ("compat-bad-value", 1, {"retention.ms": "soon"}, 40),
        ("compat-bad-key", 1, {"no.such.setting": "1"}, 40),
    ],
)
def test_what_cannot_be_created(client, name, partitions, config, code):
    assert refused_with(lambda: client.create_topic(name, partitions, config)) == code
    assert name not in client.topics()


def test_a_topic_made_again_starts_clean(client):
    name = f"compat-{uuid4().hex[:12]}"
    partition = Partition(name, 0)
    client.create_topic(name, 1)
    client.produce(partition, [Message(b"old")] * 3)
    client.delete_topic(name)
    eventually(lambda: name not in client.topics())
    client.create_topic(name, 1)
    eventually(lambda: name in client.topics())
    assert client.bounds(partition) == (0, 0)
    assert client.produce(partition, [Message(b"new")]) == [0]
    assert [record.value for record in client.read(partition, 0, 1)] == [b"new"]


def test_more_partitions(client, new_topic):
    topic = new_topic(1)
    client.produce(Partition(topic, 0), [Message(b"before")])
    client.add_partitions(topic, 4)
    eventually(lambda: client.topics()[topic] == 4)
    assert client.produce(Partition(topic, 3), [Message(b"after")]) == [0]
    assert [record.value for record in client.read(Partition(topic, 0), 0, 1)] == [b"before"]
    assert refused_with(lambda: client.add_partitions(topic, 2)) == 37  # INVALID_PARTITIONS
    assert client.topics()[topic] == 4


def test_settings_are_shown_and_changed(client, new_topic):
    topic = new_topic(1, {"segment.bytes": "1048576"})
    shown = client.topic_config(topic)
    assert shown["segment.bytes"] == "1048576"
    assert shown["cleanup.policy"] == "delete"
    assert shown["retention.ms"] == "604800000"
    assert shown["max.message.bytes"] is not None and int(shown["max.message.bytes"]) >= 1 << 20
    client.alter_topic_config(topic, {"retention.ms": "3600000", "segment.bytes": "2097152"})
    eventually(lambda: client.topic_config(topic)["retention.ms"] == "3600000")
    assert client.topic_config(topic)["segment.bytes"] == "2097152"
    assert refused_with(lambda: client.alter_topic_config(topic, {"retention.ms": "soon"})) == 40  # INVALID_CONFIG
    assert client.topic_config(topic)["retention.ms"] == "3600000"


def test_a_changed_limit_holds_at_once(client, new_topic):
    partition = Partition(new_topic(), 0)
    client.alter_topic_config(partition.topic, {"max.message.bytes": "5000"})
    eventually(lambda: client.topic_config(partition.topic)["max.message.bytes"] == "5000")
    assert refused_with(lambda: client.produce(partition, [Message(b"x" * 20_000)])) == 10  # MESSAGE_TOO_LARGE


def test_the_cluster_names_a_broker_that_answers(client, bootstrap):
    host, port = bootstrap.rsplit(":", 1)
    assert (host, int(port)) in client.cluster().values()
