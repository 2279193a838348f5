"""What is not served is refused with an error that ends the client's attempts, in every version."""

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from gateway.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from gateway.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from gateway.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest

NO_TRANSACTIONS = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TRANSACTION = 1


@pytest.fixture
async def wire(node):
    async with node.connect() as connected:
        yield connected


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_transactional_id_has_no_coordinator(wire, version):
    answer = await wire.ask(FindCoordinatorRequest("tx", TRANSACTION, ["tx"]), version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (NO_TRANSACTIONS, -1)
    assert "transactions are not served" in found.error_message


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_gets_no_producer_id(wire, version):
    answer = await wire.ask(InitProducerIdRequest("tx"), version)
    assert (answer.error_code, answer.producer_id) == (NO_TRANSACTIONS, -1)


@pytest.mark.parametrize("version", range(1, 4))
async def test_access_rules_are_answered_as_by_kafka_without_an_authorizer(wire, version):
    described = await wire.ask(DescribeAclsRequest(), version)
    created = await wire.ask(CreateAclsRequest([AclCreation(), AclCreation()]), version)
    deleted = await wire.ask(DeleteAclsRequest([DeleteAclsFilter()]), version)
    answers = [described, *created.results, *deleted.filter_results]
    assert [each.error_code for each in answers] == [ErrorCode.SECURITY_DISABLED] * 4
    assert all("access rules are not kept" in each.error_message for each in answers)


@pytest.mark.parametrize("version", range(2))
async def test_the_consumer_protocol_is_refused(wire, version):
    answer = await wire.ask(ConsumerGroupHeartbeatRequest(group_id="g"), version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "group.protocol=classic" in answer.error_message
