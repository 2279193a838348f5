"""What is not served is refused with an error that ends the client's attempts, in every version."""

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from gateway.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from gateway.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from gateway.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import Delete, Put
from hot_tier.ids import NodeId

NO_TRANSACTIONS = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TRANSACTION = 1


@pytest.fixture
async def wire(node):
    async with node.connect() as connected:
        yield connected


@pytest.fixture
async def old_broker(node):
    """A registered broker of version 0.1.0, which serves what transactions wrote as if it were committed."""
    info = BrokerInfo(NodeId(7), simple_endpoints("other", 9), version="0.1.0")
    store, image = node.node.store, node.node.image
    await image.reached(await store.transact([], [Put(model.broker_key(info.id), model.encode(info))]))
    yield info
    await image.reached(await store.transact([], [Delete(model.broker_key(info.id))]))


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_transactional_id_has_no_coordinator_beside_an_old_broker(wire, old_broker, version):
    answer = await wire.ask(FindCoordinatorRequest("tx", TRANSACTION, ["tx"]), version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (NO_TRANSACTIONS, -1)
    assert "transactions are not served" in found.error_message


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_gets_no_producer_id_beside_an_old_broker(wire, old_broker, version):
    answer = await wire.ask(InitProducerIdRequest("tx"), version)
    assert (answer.error_code, answer.producer_id) == (NO_TRANSACTIONS, -1)


async def test_newer_transactions_are_not_offered_beside_an_old_broker(wire, old_broker):
    answer = await wire.ask(ApiVersionsRequest("x", "1"), 4)
    assert (answer.finalized_features, answer.finalized_features_epoch) == ([], 0)
    assert {each.name: each.max_version for each in answer.supported_features}["transaction.version"] == 2


@pytest.mark.parametrize("version", range(1, 4))
async def test_access_rules_are_answered_as_by_kafka_without_an_authorizer(wire, version):
    described = await wire.ask(DescribeAclsRequest(), version)
    created = await wire.ask(CreateAclsRequest([AclCreation(), AclCreation()]), version)
    deleted = await wire.ask(DeleteAclsRequest([DeleteAclsFilter()]), version)
    answers = [described, *created.results, *deleted.filter_results]
    assert [each.error_code for each in answers] == [ErrorCode.SECURITY_DISABLED] * 4
    assert all("authorization is off" in each.error_message for each in answers)


@pytest.mark.parametrize("version", range(2))
async def test_the_consumer_protocol_is_refused(wire, version):
    answer = await wire.ask(ConsumerGroupHeartbeatRequest(group_id="g"), version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "group.protocol=classic" in answer.error_message
