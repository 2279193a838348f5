"""Keys and values survive the way to the store and back; foreign bytes give our error."""

from types import MappingProxyType
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.cluster import model
from hot_tier.cluster.endpoints import Endpoint, simple_endpoints
from hot_tier.cluster.model import BrokerInfo, DeletedTopic, NodeRecord, PartitionState, QuotaEntity, Topic
from hot_tier.cluster.store import LeaseId, Revision
from hot_tier.errors import CorruptMetadata
from hot_tier.ids import LeaderEpoch, NodeId

nodes = st.integers(0, 2**31 - 1).map(NodeId)
names = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
endpoints = st.builds(Endpoint, st.text(), st.integers(1, 65535), st.text(), st.frozensets(st.text(), max_size=3))


@given(
    st.builds(
        Topic,
        name=names,
        id=st.uuids(),
        partitions=st.integers(1, 10_000),
        replication_factor=st.integers(1, 5),
        config=st.dictionaries(st.text(), st.text()).map(MappingProxyType),
        created_ms=st.integers(0, 2**53),
        internal=st.booleans(),
    )
)
def test_topics_come_back(topic: Topic) -> None:
    read = model.decode_topic("topics/x", model.encode(topic), Revision(7))
    assert read == topic
    assert read.version == 7


@given(
    st.builds(
        PartitionState,
        leader=nodes,
        leader_epoch=st.integers(0, 2**31 - 1).map(LeaderEpoch),
        isr=st.lists(nodes).map(tuple),
        replicas=st.lists(nodes).map(tuple),
        adding=st.lists(nodes).map(tuple),
        removing=st.lists(nodes).map(tuple),
    )
)
def test_partition_states_come_back(state: PartitionState) -> None:
    assert model.decode_partition("partitions/x", model.encode(state), Revision(7)) == state


@given(
    st.builds(
        BrokerInfo,
        id=nodes,
        endpoints=st.dictionaries(st.text(), endpoints, max_size=5),
        rack=st.none() | st.text(),
        lease=st.integers(0, 2**63 - 1).map(LeaseId),
        data_id=st.text(),
        draining=st.booleans(),
    )
)
def test_brokers_come_back(broker: BrokerInfo) -> None:
    read = model.decode_broker("brokers/1", model.encode(broker), Revision(7))
    assert read == broker
    assert read.epoch == 7


@given(
    st.builds(
        NodeRecord,
        data_id=st.text(),
        runs=st.integers(0, 2**53),
        boot_id=st.text(),
        draining=st.booleans(),
        reassignment_bytes_per_second=st.none() | st.integers(0, 2**53),
    )
)
def test_records_of_nodes_come_back(record: NodeRecord) -> None:
    assert model.decode_node("nodes/1", model.encode(record)) == record


@given(st.builds(DeletedTopic, name=names, id=st.uuids(), partitions=st.integers(1), deleted_ms=st.integers(0, 2**53)))
def test_deleted_topics_come_back(deleted: DeletedTopic) -> None:
    if deleted.partitions < 2**63:
        assert model.decode_deleted("deleted/x", model.encode(deleted)) == deleted


@given(st.uuids(), st.integers(0, 10_000))
def test_partition_keys_are_parsed_as_made(topic_id: UUID, partition: int) -> None:
    key = model.partition_key(topic_id, partition)
    assert key.isascii()
    assert model.parse_partition_key(key) == (topic_id, partition)


@given(st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), st.none() | st.text(), min_size=1))
def test_quota_keys_are_parsed_as_made(parts: dict[str, str | None]) -> None:
    entity = QuotaEntity.of(parts)
    key = model.quota_key(entity)
    assert key.isascii()
    assert model.parse_quota_key(key) == entity


def test_no_name_and_an_empty_name_are_different_entities() -> None:
    assert model.quota_key(QuotaEntity.of({"user": None})) != model.quota_key(QuotaEntity.of({"user": ""}))


@given(st.binary() | st.sampled_from([b"{}", b"[]", b"null", b'{"id":3}', b'{"leader":0,"leader_epoch":0,"isr":1}']))
def test_other_bytes_are_refused(data: bytes) -> None:
    for decode in (
        lambda: model.decode_topic("k", data, Revision(1)),
        lambda: model.decode_partition("k", data, Revision(1)),
        lambda: model.decode_broker("k", data, Revision(7)),
        lambda: model.decode_node("k", data),
        lambda: model.decode_deleted("k", data),
    ):
        with pytest.raises(CorruptMetadata):
            decode()


def test_fields_of_a_newer_broker_are_ignored() -> None:
    data = b'{"id":3,"host":"h","port":1,"rack":null,"http_host":"","http_port":0,"colour":"green"}'
    assert model.decode_broker("brokers/3", data, Revision(7)) == BrokerInfo(NodeId(3), simple_endpoints("h", 1))


def test_the_name_of_a_host_is_not_its_address() -> None:
    """Version 0.1 reads `host` and `port`; what it wrote names no host."""
    named = BrokerInfo(NodeId(3), simple_endpoints("h", 1), host_name="north")
    data = model.encode(named)
    assert orjson.loads(data)["host"] == "h"
    assert model.decode_broker("brokers/3", data, Revision(7)).host_name == "north"
    old = b'{"id":3,"host":"h","port":1,"rack":null,"http_host":"","http_port":0}'
    assert model.decode_broker("brokers/3", old, Revision(7)).host_name is None


def test_topic_ids_suit_command_lines() -> None:
    ids = {model.new_topic_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert not any(each.bytes[0] >> 2 == 62 for each in ids), "base64 would start with '-'"
