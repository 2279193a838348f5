"""Transactions over HTTP: begin, produce to several topics, commit a group's offsets, end; and a look at all of them.

All but the list are done by the broker that coordinates the transactional id: it has the session.
"""

import asyncio
import re
from collections.abc import Awaitable
from hashlib import blake2b
from typing import Final, TypeVar

import orjson
from aiohttp import web

from gateway.coordinators.errors import CoordinatorLoading, TransactionalIdNotFound
from gateway.coordinators.group_offsets import Commit
from gateway.coordinators.transactions.states import IDLE, State
from gateway.http.budget import Lease
from gateway.http.idempotency import IDEMPOTENCY_KEY
from gateway.http.message_batch import Batch, let_go
from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import CLIENT_ID, TOPIC, Parameter
from gateway.http.permissions import Need, Shown, on_topic, refused
from gateway.http.problems import Problem
from gateway.http.producer import Stored
from gateway.http.routes.writing import pause, placed, stored_document, writable_topic
from gateway.http.schemas import NewMessages
from gateway.http.transaction_schemas import (
    BegunTransaction,
    EndedTransaction,
    NewTransaction,
    OffsetsAdded,
    TransactionDescription,
    TransactionOffsets,
    TransactionPartition,
    TransactionResults,
    Transactions,
    TransactionSummary,
)
from gateway.http.transactions.session import Token
from gateway.off_loop import off_loop
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.cluster.model import BrokerInfo, Topic
from hot_tier.errors import TierlogError
from hot_tier.ids import PartitionId, TopicPartition

ID_MAX: Final = 249
NO_TOKEN: Final = Token(-1, -1)
_TOKEN: Final = re.compile(r"(\d{1,18})-(\d{1,4}|[12]\d{4}|3[01]\d{3}|32[0-6]\d\d|327[0-5]\d|3276[0-7])", re.ASCII)

T = TypeVar("T")


def _transactional_id(text: str) -> str:
    if not 1 <= len(text) <= ID_MAX:
        raise ValueError(f"must have 1 to {ID_MAX} characters, not {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be UTF-8") from None
    return text


def _token(text: str) -> Token:
    """Returns the token. A text that is not a token names no transaction, like a token that is not known here."""
    found = _TOKEN.fullmatch(text)
    return NO_TOKEN if found is None else Token(int(found[1]), int(found[2]))


TRANSACTIONAL_ID: Final = Parameter(
    "transactional_id",
    "path",
    "The name under which a service does its transactions, one after the other. Each of its instances has its own.",
    {"type": "string", "minLength": 1, "maxLength": ID_MAX, "examples": ["billing-1"]},
    _transactional_id,
    required=True,
)
_TOKEN_SCHEMA: Final = {"type": "string", "examples": ["4000-7"]}
TRANSACTION: Final = Parameter(
    "X-Transaction", "header", "The transaction, as `begin` named it.", _TOKEN_SCHEMA, _token, required=True
)
ANY_TRANSACTION: Final = Parameter(
    "X-Transaction",
    "header",
    "The transaction, as `begin` named it. Without it whatever transaction is open is aborted and its producer fenced: "
    "what an operator does.",
    _TOKEN_SCHEMA,
    _token,
)


def _on_id(operation: Permitted) -> Need:
    return Need(operation, ResourceType.TRANSACTIONAL_ID, lambda call: call.values["transactional_id"])


async def _at_coordinator(call: Call) -> BrokerInfo | None:
    """Returns the coordinator of the transactional id if there is one. A look does not make the topic."""
    name = call.values["transactional_id"]
    node_id = call.api.node.transactions.find_existing(name)
    if node_id is None:
        raise TransactionalIdNotFound(where=name)
    return call.api.peers.registered(node_id, name)


async def _at_new_coordinator(call: Call) -> BrokerInfo | None:
    broker = await call.api.node.transactions.find(call.values["transactional_id"])
    return call.api.peers.registered(broker.id, call.values["transactional_id"])


async def list_transactions(call: Call) -> web.StreamResponse:
    """Refuses if a broker does not tell its transactions: a list without them would say that there are none."""
    node = call.api.node
    if node.transactions.is_loading:
        raise CoordinatorLoading("transactions are being read back", hint="try again")
    found = [
        TransactionSummary(
            transactional_id=each.transactional_id,
            state=each.state.title,
            producer_id=each.producer_id,
            started_ms=_started_ms(each.state, each.started_ms),
            coordinator=node.node_id,
        )
        for each in node.transactions.list()
    ]
    if not call.alone:
        for _, told in await call.api.view.everywhere("GET", "/api/v1/transactions"):
            if isinstance(told, Problem | TierlogError):
                raise told
            found += [TransactionSummary.model_validate(each) for each in told["transactions"]]
    kind = ResourceType.TRANSACTIONAL_ID
    shown = [each for each in found if call.may(Permitted.DESCRIBE, kind, each.transactional_id)]
    return json_response(Transactions(transactions=sorted(shown, key=lambda each: each.transactional_id)))


async def describe_transaction(call: Call) -> web.StreamResponse:
    node = call.api.node
    found = node.transactions.describe(call.values["transactional_id"])
    return json_response(
        TransactionDescription(
            transactional_id=found.transactional_id,
            state=found.state.title,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.timeout_ms,
            started_ms=_started_ms(found.state, found.started_ms),
            coordinator=node.node_id,
            partitions=[
                TransactionPartition(topic=tp.topic, partition=tp.partition)
                for tp in found.partitions
                if call.may(Permitted.DESCRIBE, ResourceType.TOPIC, tp.topic)
            ],
        )
    )


def _started_ms(state: State, started_ms: int) -> int | None:
    """Returns when the open transaction began; the coordinator remembers the last one's start too."""
    return None if state in IDLE or started_ms < 0 else started_ms


async def begin(call: Call) -> web.StreamResponse:
    asked, name = call.body, call.values["transactional_id"]
    assert isinstance(asked, NewTransaction)
    token = await _in_full(call.api.transactions.begin(name, asked.timeout_ms))
    return json_response(BegunTransaction(transactional_id=name, transaction=str(token), timeout_ms=asked.timeout_ms))


async def post_messages(call: Call) -> web.StreamResponse:
    api, values, batch = call.api, call.values, call.body
    session = api.transactions.find(values["transactional_id"], values["X-Transaction"])
    topic = writable_topic(call)

    async def post() -> bytes:
        keyless = api.producer.choose_partition(topic, None)
        records, by_partition = await off_loop(batch.weight, placed, batch, topic, keyless, api.node.clock())
        most_bytes = api.node.partitions.config(topic).max_message_bytes
        stored = await session.post(api.transactions.writes, topic.name, by_partition, records, most_bytes)
        await off_loop(batch.weight, let_go, records)
        return await off_loop(len(stored), _results, topic, stored)

    with Lease(api.bodies.budget, call.request) as lease:
        await lease.hold(min(batch.cost_bytes, api.bodies.budget.most_for_one // 2))
        raw = call.raw or b""
        digest = blake2b(raw, digest_size=16, key=topic.name.encode()[:64]).digest()
        body = await _in_full(session.once(values["Idempotency-Key"], digest, batch.messages, post))
    await pause(call, len(raw))
    return web.Response(body=body, content_type=JSON)


def _results(topic: Topic, stored: list[Stored]) -> bytes:
    return orjson.dumps({"results": [stored_document(topic, each) for each in stored]})


async def add_offsets(call: Call) -> web.StreamResponse:
    asked, values = call.body, call.values
    assert isinstance(asked, TransactionOffsets)
    for topic in {each.topic for each in asked.offsets}:
        if not call.may(Permitted.READ, ResourceType.TOPIC, topic):
            raise refused(Permitted.READ, ResourceType.TOPIC)
    commits = {
        TopicPartition(each.topic, PartitionId(each.partition)): Commit(each.offset, metadata=each.metadata)
        for each in asked.offsets
    }
    session = call.api.transactions.find(values["transactional_id"], values["X-Transaction"])

    async def add() -> bytes:
        await session.commit_offsets(call.api.transactions.writes, asked.group, commits)
        return b""

    await _in_full(session.once(None, b"", 0, add))
    return json_response(OffsetsAdded())


async def commit(call: Call) -> web.StreamResponse:
    name = call.values["transactional_id"]
    await _in_full(call.api.transactions.end(name, call.values["X-Transaction"], True))
    return json_response(EndedTransaction(transactional_id=name, outcome="committed"))


async def abort(call: Call) -> web.StreamResponse:
    name, token = call.values["transactional_id"], call.values["X-Transaction"]
    sessions = call.api.transactions
    await _in_full(sessions.abort(name) if token is None else sessions.end(name, token, False))
    return json_response(EndedTransaction(transactional_id=name, outcome="aborted"))


async def _in_full(step: Awaitable[T]) -> T:
    """Does the whole step, also if the client is gone meanwhile: then a repeated request finds it done."""
    return await asyncio.shield(asyncio.ensure_future(step))


_PATH: Final = "/api/v1/transactions/{transactional_id}"

OPERATIONS: Final = (
    Operation(
        name="listTransactions",
        method="GET",
        path="/api/v1/transactions",
        tag="transactions",
        summary="List transactional ids and their states",
        handler=list_transactions,
        needs=(Shown(Permitted.DESCRIBE, ResourceType.TRANSACTIONAL_ID),),
        answers={200: Answer("Those of all brokers, by name.", {JSON: Transactions})},
        problems=(503,),
    ),
    Operation(
        name="describeTransaction",
        method="GET",
        path=_PATH,
        tag="transactions",
        summary="Describe a transactional id and its open transaction",
        handler=describe_transaction,
        needs=(_on_id(Permitted.DESCRIBE), Shown(Permitted.DESCRIBE, ResourceType.TOPIC)),
        place=_at_coordinator,
        parameters=(TRANSACTIONAL_ID,),
        answers={
            200: Answer("Its state, and what the open transaction has written to.", {JSON: TransactionDescription})
        },
        problems=(404, 503),
    ),
    Operation(
        name="beginTransaction",
        method="POST",
        path=f"{_PATH}/begin",
        tag="transactions",
        summary="Begin a transaction",
        description="Fences whoever used the transactional id before, and aborts the transaction that it left open.",
        handler=begin,
        needs=(_on_id(Permitted.WRITE),),
        place=_at_new_coordinator,
        parameters=(TRANSACTIONAL_ID,),
        body=Document(NewTransaction),
        answers={200: Answer("Begun. `transaction` names it in what follows.", {JSON: BegunTransaction})},
        problems=(409, 413, 415, 503),
    ),
    Operation(
        name="postTransactionMessages",
        method="POST",
        path=f"{_PATH}/topics/{{topic}}/messages",
        tag="transactions",
        summary="Produce messages in a transaction",
        description="Who reads committed records sees them once the transaction is committed. All are stored, or the "
        "transaction can only be aborted.",
        handler=post_messages,
        needs=(_on_id(Permitted.WRITE), on_topic(Permitted.WRITE)),
        place=_at_new_coordinator,
        parameters=(TRANSACTIONAL_ID, TOPIC, TRANSACTION, IDEMPOTENCY_KEY, CLIENT_ID),
        body=Document(NewMessages, "max_batch_bytes", Batch),
        answers={200: Answer("All are stored; one result per message, in their order.", {JSON: TransactionResults})},
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="addTransactionOffsets",
        method="POST",
        path=f"{_PATH}/offsets",
        tag="transactions",
        summary="Commit a group's offsets in a transaction",
        description="They count once the transaction is committed.",
        handler=add_offsets,
        needs=(
            _on_id(Permitted.WRITE),
            Need(Permitted.READ, ResourceType.GROUP, lambda call: call.body.group, of_body=True),
        ),
        place=_at_new_coordinator,
        parameters=(TRANSACTIONAL_ID, TRANSACTION),
        body=Document(TransactionOffsets),
        answers={200: Answer("They are in the transaction.", {JSON: OffsetsAdded})},
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="commitTransaction",
        method="POST",
        path=f"{_PATH}/commit",
        tag="transactions",
        summary="Commit a transaction",
        handler=commit,
        needs=(_on_id(Permitted.WRITE),),
        place=_at_new_coordinator,
        parameters=(TRANSACTIONAL_ID, TRANSACTION),
        answers={200: Answer("Committed. The same request again gets the same answer.", {JSON: EndedTransaction})},
        problems=(409, 503),
    ),
    Operation(
        name="abortTransaction",
        method="POST",
        path=f"{_PATH}/abort",
        tag="transactions",
        summary="Abort a transaction",
        handler=abort,
        needs=(_on_id(Permitted.WRITE),),
        place=_at_coordinator,
        parameters=(TRANSACTIONAL_ID, ANY_TRANSACTION),
        answers={200: Answer("Aborted. The same request again gets the same answer.", {JSON: EndedTransaction})},
        problems=(404, 409, 503),
    ),
)
