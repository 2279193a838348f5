"""Producing over HTTP: one message as the body, or many as JSON.

Often a single message is itself JSON. So the media type cannot tell one message from many, and many messages have an
address of their own.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.coordinators.transactions.rollout import is_served
from gateway.http.api import Api
from gateway.http.budget import Lease
from gateway.http.idempotency import IDEMPOTENCY_KEY, KEY_REUSED, NOT_SERVED, REPLAYED, check_room, producer_of
from gateway.http.message_batch import Batch, let_go
from gateway.http.operation import JSON, Answer, Call, Document, Operation, RawBody
from gateway.http.parameters import CLIENT_ID, INT32_MAX, TOPIC, Parameter, integer_schema, whole_number
from gateway.http.partitioner import partition_for_key
from gateway.http.peers.batch_forwarding import forward_batch
from gateway.http.peers.behalf import SENDER, write_sender
from gateway.http.peers.forwarding import relay
from gateway.http.peers.remote_partition import RemotePartition
from gateway.http.permissions import on_topic
from gateway.http.problems import BAD_PARAMETER, Problem, as_problem, document
from gateway.http.producer import Run, Stored
from gateway.http.schemas import BatchResults, NewMessages
from gateway.http.schemas import Stored as StoredDocument
from gateway.off_loop import off_loop
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.internal_topics import AUDIT_TOPIC
from hot_tier.cluster.model import BrokerInfo, Topic
from hot_tier.errors import InvalidTopicName, NoLeader, OutOfOrderSequence, TierlogError, UnknownPartition
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.record.records import NewRecord

RECORD_HEADER_PREFIX: Final = b"x-header-"
RESULTS_AT_ONCE: Final = 1_000

KEY: Final = Parameter(
    "X-Partition-Key",
    "header",
    "The record's key: equal keys go to the same partition, in order.",
    {"type": "string", "examples": ["user_123"]},
    lambda text: text.encode("utf-8", "surrogateescape"),
)
TO_PARTITION: Final = Parameter(
    "partition",
    "query",
    "Write to this partition, whatever the key.",
    integer_schema(0, INT32_MAX),
    whole_number(0, INT32_MAX),
)


async def post_message(call: Call) -> web.StreamResponse:
    api, values = call.api, call.values
    topic = writable_topic(call)
    key: bytes | None = values["X-Partition-Key"]
    once: str | None = values["Idempotency-Key"]
    partition: int | None = values["partition"]
    if partition is None:
        known = once.encode() if key is None and once is not None else key
        partition = api.producer.choose_partition(topic, known)
    else:
        _check_partition(topic, partition)
    if once is not None:
        _check_once(call)
    leader = api.peers.leader(topic.name, partition)
    if leader is not None and (call.forwarded or _is_text(call.request)):
        return await relay(call, leader, {"partition": str(partition)})
    record = NewRecord(api.node.clock(), key, call.body, _record_headers(call.request))
    if leader is not None:
        # Headers between brokers are text and would lose other bytes. So this message goes as a batch of one.
        there = RemotePartition(api.peers, leader, TopicPartition(topic.name, PartitionId(partition)))
        headers = [("X-Client-Id", values["X-Client-Id"]), (SENDER, write_sender(call.principal))]
        told = await there.send(record, headers)
        return web.Response(body=orjson.dumps(told), content_type=JSON)
    replayed = False
    if once is None:
        stored = await api.producer.send(topic, partition, record)
    else:
        stored, replayed = await _send_once(call, topic, partition, record, once)
    await pause(call, len(call.body))
    answer = web.Response(body=orjson.dumps(stored_document(topic, stored)), content_type=JSON)
    if replayed:
        answer.headers[REPLAYED] = "true"
    return answer


def _check_once(call: Call) -> None:
    """Raises a Problem if some broker would store the message twice, or not as the same."""
    node = call.api.node
    if not is_served(node.image, node.node_id):
        raise Problem(NOT_SERVED, "a broker of this cluster runs version 0.1, which does not know the Idempotency-Key")
    if not _is_text(call.request):
        raise Problem(BAD_PARAMETER, "with an Idempotency-Key all headers must be UTF-8")


async def _send_once(call: Call, topic: Topic, partition: int, record: NewRecord, key: str) -> tuple[Stored, bool]:
    producer = producer_of(key, call.principal.name, record)
    check_room(call.api.node.partitions.get(topic.name, PartitionId(partition)), producer)
    try:
        return await call.api.producer.send_once(topic, partition, record, producer)
    except OutOfOrderSequence:
        raise Problem(KEY_REUSED, f"another message was posted to {topic.name}-{partition} with this key") from None


async def post_messages(call: Call) -> web.StreamResponse:
    with Lease(call.api.bodies.budget, call.request) as lease:
        await lease.hold(min(call.body.cost_bytes, call.api.bodies.budget.most_for_one // 2))
        return await _store(call, call.body)


async def _store(call: Call, batch: Batch) -> web.StreamResponse:
    api = call.api
    topic = writable_topic(call, also=AUDIT_TOPIC if call.by_broker else "")
    keyless = api.producer.choose_partition(topic, None)
    records, by_partition = await off_loop(batch.weight, placed, batch, topic, keyless, api.node.clock())
    outcomes: list[Any] = [None] * len(records)
    here, elsewhere = _by_leader(api, topic, by_partition, call.forwarded)
    written_here = {partition: by_partition[partition] for partition in here}
    forwards = (
        forward_batch(
            call,
            leader,
            [(index, number, records[index]) for number in numbers for index in by_partition[number]],
            outcomes,
        )
        for leader, numbers in elsewhere
    )
    sending = api.producer.send_all(topic, written_here, records, batch.weight)
    runs, _ = await asyncio.gather(sending, asyncio.gather(*forwards))
    stored_here = sum(map(len, written_here.values()))
    await pause(call, len(call.raw or b"") * stored_here // len(records))
    status, body = await off_loop(batch.weight, _results, topic, records, runs, outcomes, call.request.path)
    return web.Response(status=status, body=body, content_type=JSON)


def _by_leader(
    api: Api, topic: Topic, partitions: Iterable[int], forwarded: bool
) -> tuple[list[int], list[tuple[BrokerInfo, list[int]]]]:
    """Returns the partitions to write here, and those of each other broker.

    Partitions without a leader, and those of a forwarded request, are tried here; if this broker does not lead them,
    they are refused.
    """
    here: list[int] = []
    elsewhere: dict[NodeId, tuple[BrokerInfo, list[int]]] = {}
    for partition in partitions:
        try:
            leader = None if forwarded else api.peers.leader(topic.name, partition)
        except NoLeader:
            leader = None
        if leader is None:
            here.append(partition)
        else:
            elsewhere.setdefault(leader.id, (leader, []))[1].append(partition)
    return here, list(elsewhere.values())


def placed(batch: Batch, topic: Topic, keyless: int, now_ms: int) -> tuple[list[NewRecord], Mapping[int, list[int]]]:
    """Returns the messages as records, and their indexes by partition. The message or its key names the partition; the
    others are spread, beginning at `keyless`."""
    messages = batch.read(now_ms)
    found: dict[int, list[int]] = {}
    for index, (record, partition) in enumerate(zip(messages.records, messages.partitions, strict=True)):
        if partition is not None:
            _check_partition(topic, partition)
        elif record.key is not None:
            partition = partition_for_key(record.key, topic.partitions)
        else:
            partition = keyless
            keyless = (keyless + 1) % topic.partitions
        found.setdefault(partition, []).append(index)
    return messages.records, found


def _refusal(outcome: Problem | TierlogError, instance: str) -> dict[str, Any]:
    return document(outcome if isinstance(outcome, Problem) else as_problem(outcome), instance)


def _results(
    topic: Topic, records: list[NewRecord], runs: Iterable[Run], outcomes: list[Any], instance: str
) -> tuple[int, bytes]:
    """Returns the answer's status and document. `outcomes` has the results of forwarded messages.

    The document is written in parts, because orjson holds the interpreter until it is done. Long lists are freed here,
    not on the loop.
    """
    for run in runs:
        for index, outcome in zip(run.indexes, run.outcomes(records), strict=True):
            outcomes[index] = outcome
    let_go(records)
    refused = [outcome for outcome in outcomes if isinstance(outcome, TierlogError | Problem)]
    if len(refused) == len(outcomes):
        raise refused[0].with_traceback(None)
    parts = []
    for start in range(0, len(outcomes), RESULTS_AT_ONCE):
        results = [
            stored_document(topic, outcome) if isinstance(outcome, Stored) else {"error": _refusal(outcome, instance)}
            for outcome in outcomes[start : start + RESULTS_AT_ONCE]
        ]
        parts.append(orjson.dumps(results)[1:-1])
    outcomes.clear()
    return 207 if refused else 200, b'{"results":[%b]}' % b",".join(parts)


def stored_document(topic: Topic, stored: Stored) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partition": stored.partition,
        "offset": stored.offset,
        "timestamp": stored.timestamp,
    }


def writable_topic(call: Call, also: str = "") -> Topic:
    """Returns the topic. Raises InvalidTopicName for one of the service's own, but for `also`."""
    name = call.values["topic"]
    topic = call.api.node.image.topic(name)
    if topic.internal and name != also:
        raise InvalidTopicName(f"{name} belongs to the service", hint="Write to a topic of your own.")
    return topic


def _check_partition(topic: Topic, partition: int) -> None:
    if partition >= topic.partitions:
        raise UnknownPartition(
            f"there is no partition {partition}",
            where=topic.name,
            hint=f"The topic has the partitions 0 to {topic.partitions - 1}.",
        )


def _is_text(request: web.Request) -> bool:
    try:
        "".join(request.headers.values()).encode()
    except UnicodeEncodeError:
        return False
    return True


def _record_headers(request: web.Request) -> tuple[tuple[str, bytes], ...]:
    return tuple(
        (name[len(RECORD_HEADER_PREFIX) :].lower().decode("utf-8", "replace"), value)
        for name, value in request.raw_headers
        if len(name) > len(RECORD_HEADER_PREFIX) and name[: len(RECORD_HEADER_PREFIX)].lower() == RECORD_HEADER_PREFIX
    )


async def pause(call: Call, nbytes: int) -> None:
    """Delays the answer to a client that is over its quota. This slows down a client that waits for answers."""
    node, client_id = call.api.node, call.values["X-Client-Id"]
    throttle_ms = node.quotas.charge(client_id, "produce", nbytes, node.clock(), call.principal.name)
    if throttle_ms:
        await call.api.throttle(throttle_ms)


OPERATIONS: Final = (
    Operation(
        name="postMessage",
        method="POST",
        path="/api/v1/topics/{topic}/messages",
        tag="messages",
        summary="Produce one message",
        description="The body is the message, byte for byte, whatever its media type. A header `X-Header-<name>` "
        "becomes the record's header `<name>`, in lower case.",
        handler=post_message,
        needs=(on_topic(Permitted.WRITE),),
        parameters=(TOPIC, KEY, TO_PARTITION, IDEMPOTENCY_KEY, CLIENT_ID),
        body=RawBody("The message."),
        answers={
            200: Answer(
                "Stored: every in-sync replica has it.",
                {JSON: StoredDocument},
                {REPLAYED: "`true` if an earlier request with this Idempotency-Key has stored it."},
            )
        },
        problems=(404, 409, 413, 503),
    ),
    Operation(
        name="postMessages",
        method="POST",
        path="/api/v1/topics/{topic}/messages/batch",
        tag="messages",
        summary="Produce many messages",
        handler=post_messages,
        needs=(on_topic(Permitted.WRITE),),
        parameters=(TOPIC, CLIENT_ID),
        body=Document(NewMessages, "max_batch_bytes", Batch),
        answers={
            200: Answer("All are stored; one result per message, in their order.", {JSON: BatchResults}),
            207: Answer("Some are not stored; their results have an `error`.", {JSON: BatchResults}),
        },
        problems=(404, 409, 413, 415, 503),
    ),
)
