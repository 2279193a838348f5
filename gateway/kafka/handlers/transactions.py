"""ListTransactions and DescribeTransactions: there are none, and tools that look for them are told so."""

from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from gateway.kafka.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def list_all(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    unknown = dict.fromkeys(name for name in request.state_filters if name not in STATES)
    return ListTransactionsResponse(unknown_state_filters=list(unknown))


async def describe(request: DescribeTransactionsRequest, context: RequestContext) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
            async for transactional_id in context.turn().through(dict.fromkeys(request.transactional_ids))
        ]
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.LIST_TRANSACTIONS: Handler(0, 2, list_all),
    ApiKey.DESCRIBE_TRANSACTIONS: Handler(0, 0, describe),
}
