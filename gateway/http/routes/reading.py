"""Consuming over HTTP: where a read begins and ends, long polling, and the forms of an answer.

Reads end at the last stable offset, so they show only committed records. A group's read (`X-Consumer-Group` without
`offset` and `from`) begins at the group's committed offset and leaves out its dead-lettered records. It is reported to
`gateway.delivery.dead_letters`, which may ask for one record at a time.

A JSON answer is collected first and then sent. A stream is sent while it is read, and ends where the log ended when the
stream began. A stream that meets damage is cut off; it never looks complete.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import orjson
import structlog
from aiohttp import web

from cold_tier.errors import CorruptObject, KeyMissing
from gateway.delivery.dead_letters import Delivery
from gateway.fetch.reader import Isolation
from gateway.http.api import Api
from gateway.http.budget import Lease
from gateway.http.kinds import kind_of
from gateway.http.message_codec import ArrowWriter, LineWriter, content_bytes, json_line, message, value_line
from gateway.http.operation import ARROW_STREAM, ASKED, JSON, NDJSON, RECORD_BYTES, TEXT, Answer, Call, Operation
from gateway.http.parameters import (
    CLIENT_ID,
    INT32_MAX,
    INT64_MAX,
    PARTITION,
    TOPIC,
)
from gateway.http.peers.cluster_view import Bounds
from gateway.http.peers.forwarding import at_leader
from gateway.http.permissions import Need, check, on_topic
from gateway.http.problems import NOT_ACCEPTABLE, Problem
from gateway.http.routes.read_parameters import (
    AS_GROUP,
    FROM,
    ISOLATION,
    LIMIT,
    MAX_BYTES,
    OFFSET,
    TO,
    VALUE_ENCODING,
    WAIT,
)
from gateway.http.schemas import Messages
from gateway.http.sending import pieces
from gateway.off_loop import off_loop
from gateway.record_stream import CHUNK_BYTES, RecordStream
from hot_tier.clock import steady_s
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.errors import CorruptLog, NotLeader, OffsetOutOfRange, TierlogError, UnknownTopic
from hot_tier.record.records import Record
from hot_tier.replication.led_partition import LedPartition

SERVED: Final = (JSON, NDJSON, TEXT, ARROW_STREAM)
NOTHING: Final[Collection[int]] = frozenset()
RECORD_COST_BYTES: Final = 500
"""The memory of a record besides its contents, as an object and as JSON."""
HEADER_COST_BYTES: Final = 100
STREAM_BYTES: Final = 2 * CHUNK_BYTES
"""What a stream holds at least: one chunk, and the output made from it."""

_log = structlog.get_logger()


@dataclass(slots=True)
class Read:
    """One request to read. `start` moves past records that need not be read again."""

    partition: LedPartition
    start: int
    to_ms: int | None
    limit: int
    max_bytes: int
    group: str | None
    """Set when the read begins at the group's committed offset."""
    client_id: str
    user: str
    as_text: bool
    isolation: Isolation
    lost: asyncio.Event
    """Set when the client has disconnected."""

    @property
    def visible_end(self) -> int:
        """Returns how far the reader may see now."""
        partition = self.partition
        committed = self.isolation is Isolation.READ_COMMITTED
        return partition.last_stable_offset if committed else partition.high_watermark


class Found(NamedTuple):
    records: list[Record]
    next_offset: int
    read_bytes: int
    complete: bool
    """The end that `to` sets is reached: there is nothing to wait for."""


async def get_messages(call: Call) -> web.StreamResponse:
    values, api = call.values, call.api
    settings = api.settings
    media = choose_media(call.request.headers.get("Accept", ""))
    read = Read(
        partition=api.node.partitions.get(values["topic"], values["partition"]),
        start=0,
        to_ms=values["to"],
        limit=values["limit"] or (settings.read_limit if media == JSON else INT32_MAX),
        max_bytes=values["max_bytes"] or INT64_MAX,
        group=values["X-Consumer-Group"] if values["offset"] is None and values["from"] is None else None,
        client_id=values["X-Client-Id"],
        user=call.principal.name,
        as_text=values["value_encoding"] == "text",
        isolation=values["isolation"],
        lost=getattr(call.request.protocol, "lost", None) or asyncio.Event(),
    )
    if media == JSON:
        read.limit = min(read.limit, settings.max_read_limit)
        read.max_bytes = min(read.max_bytes, settings.read_max_bytes)
    await _find_start(api, read, values["offset"], values["from"])
    wait_ms = min(values["wait_ms"], settings.max_wait_ms)
    with Lease(api.answers, call.request) as lease:
        try:
            found = await _find_records(api, read, lease, read.limit if media == JSON else 1, wait_ms)
        except OffsetOutOfRange as error:
            raise out_of_range(error, Bounds.of(read.partition)) from error
        check(NEEDS, call, of_body=False)  # it may have waited long
        if media == JSON:
            return await _answer_json(api, read, found)
        return await _answer_stream(api, read, lease, found, call.request, media)


def choose_media(accept: str, served: Sequence[str] = SERVED) -> str:
    """Returns the served media type with the highest quality, the first among equals; JSON if none is asked for."""
    if not accept:
        return JSON
    best, chosen = 0.0, ""
    for part in accept.split(","):
        name, *options = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for option in options:
            if option.startswith("q="):
                try:
                    quality = float(option[2:])
                except ValueError:
                    quality = 0.0
        wanted = JSON if name in ("*/*", "application/*") else name
        if wanted in served and quality > best:
            best, chosen = quality, wanted
    if not chosen:
        raise Problem(NOT_ACCEPTABLE, f"{accept!r} has none of {', '.join(served)}")
    return chosen


def out_of_range(error: OffsetOutOfRange, bounds: Bounds) -> Problem:
    """Returns the problem with the offsets that are in range; the hint refers to them."""
    extra = {"earliest_offset": bounds.log_start_offset, "latest_offset": bounds.last_stable_offset}
    return Problem(kind_of(error), f"{error.where}: {error.what}", extra=extra)


async def _find_start(api: Api, read: Read, offset: int | str | None, from_ms: int | None) -> None:
    partition = read.partition
    earliest, latest = partition.log_start_offset, read.visible_end
    if read.group is not None:
        read.start = await api.dead_letters.group_position(read.group, partition)
        return
    if isinstance(offset, int):
        if not earliest <= offset <= partition.log_end_offset:
            refused = OffsetOutOfRange(f"offset {offset} is not in the log", where=str(partition.tp))
            raise out_of_range(refused, Bounds.of(partition))
        read.start = offset
    elif offset == "latest":
        partition.check_committed_known()
        read.start = latest
    else:
        read.start = earliest
    if from_ms is not None:
        found = await api.node.reader.offset_for_timestamp(partition, from_ms, read.isolation)
        if found is None:
            partition.check_committed_known()
        read.start = max(read.start, latest if found is None else found.offset)


async def _find_records(api: Api, read: Read, lease: Lease, limit: int, wait_ms: int) -> Found:
    """Returns the records that exist, or that arrive within `wait_ms`. `dead_letters` decides what a group gets."""
    partition = read.partition
    deadline = steady_s() + wait_ms / 1000
    moved = asyncio.Event()
    partition.add_waiter(moved.set)
    try:
        while True:
            moved.clear()
            await lease.hold(0)
            found = await _collect(api, read, lease, limit)
            if found.records and read.group is not None:
                first = found.records[0].offset
                decision = await api.dead_letters.before_delivery(read.group, partition, first)
                if decision is Delivery.MOVED_ON:
                    read.start = await api.dead_letters.group_position(read.group, partition)
                    continue
                if decision is Delivery.ALONE:
                    read.limit = 1
                    found = found._replace(records=found.records[:1], next_offset=first + 1)
            left_ms = (deadline - steady_s()) * 1000
            if found.records or found.complete or left_ms <= 0 or api.stopping.is_set():
                return found
            read.start = found.next_offset
            if read.visible_end > read.start:
                continue
            api.metrics.long_polls += 1
            try:
                await api.wait_or_stop(moved, read.lost, timeout_ms=left_ms)
            finally:
                api.metrics.long_polls -= 1
            if read.lost.is_set():
                raise ConnectionResetError("the client has disconnected")
            current = api.node.partitions.get(*partition.tp)
            if current.topic.id != partition.topic.id:
                raise UnknownTopic(f"topic {partition.tp.topic} was deleted and made again", where=str(partition.tp))
            if current is not partition:
                raise NotLeader("another broker has led the partition meanwhile", where=str(partition.tp))
    finally:
        partition.remove_waiter(moved.set)


async def _collect(api: Api, read: Read, lease: Lease, limit: int) -> Found:
    """Returns up to `limit` records, or fewer if memory is short. Raises Problem if the first ones do not fit."""
    stream, skip, complete = await _open_stream(api, read)
    records: list[Record] = []
    next_offset = read.start
    size, most_bytes = 0, api.settings.read_max_bytes
    while len(records) < limit and size < most_bytes:
        try:
            chunk = await stream.next()
            # One record more than needed shows where the next read begins.
            more = [] if chunk is None else await chunk.records(limit - len(records) + len(skip) + 1)
        except (CorruptLog, CorruptObject, KeyMissing):
            # The records before the damage are good. The next read begins at the damage and reports it.
            if not records:
                raise
            break
        if chunk is None:
            break
        wanted = await off_loop(len(chunk.buffer) // RECORD_BYTES, sum, map(_answer_bytes, more))
        if not records:
            lease.need(wanted)
        elif not lease.take(wanted):
            break
        next_offset = chunk.next_offset
        for record in more:
            if record.offset in skip:
                continue
            if len(records) == limit or size >= most_bytes:
                next_offset = record.offset
                break
            records.append(record)
            size += _record_bytes(record)
    return Found(records, next_offset, stream.read_bytes, complete and next_offset >= stream.end_offset)


def _record_bytes(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += HEADER_COST_BYTES + len(name or "") + len(content or b"")
    return size


def _answer_bytes(record: Record) -> int:
    """Returns about the memory of the record and its JSON together; base64 is a third longer."""
    return RECORD_COST_BYTES + _record_bytes(record) * 5 // 2


async def _open_stream(api: Api, read: Read) -> tuple[RecordStream, Collection[int], bool]:
    """Returns a stream from `read.start` to the present end, the offsets to leave out, and whether `to` set the end."""
    partition = read.partition
    end = read.visible_end
    by_time = False
    if read.to_ms is not None:
        found = await api.node.reader.offset_for_timestamp(partition, read.to_ms, read.isolation)
        if found is not None and found.offset < end:
            end, by_time = found.offset, True
    skip = NOTHING if read.group is None else await api.dead_letters.handled(read.group, partition)
    stream = RecordStream(api.node, partition, read.start, end, max_bytes=read.max_bytes, isolation=read.isolation)
    return stream, skip, by_time


async def _answer_json(api: Api, read: Read, found: Found) -> web.StreamResponse:
    body = await off_loop(found.read_bytes // RECORD_BYTES, _render, found, read.as_text)
    if read.group is not None and found.records:
        first, last = found.records[0].offset, found.records[-1].offset
        api.dead_letters.delivered(read.group, read.partition, first, last + 1, alone=len(found.records) == 1)
    await _charge(api, read, found.read_bytes)
    return web.Response(body=body, content_type=JSON)


def _render(found: Found, as_text: bool) -> bytes:
    # One record at a time: orjson would hold the interpreter until a large answer is done. And none is kept: the bytes
    # of each have a buffer of 4 KB.
    body = bytearray(b'{"messages":[')
    for number, record in enumerate(found.records):
        body += b"," if number else b""
        body += orjson.dumps(message(record, as_text=as_text))
    body += b'],"next_offset":%d}' % found.next_offset
    return bytes(body)


async def _answer_stream(
    api: Api, read: Read, lease: Lease, found: Found, request: web.Request, media: str
) -> web.StreamResponse:
    await lease.hold(STREAM_BYTES)
    response = web.StreamResponse(headers={"Content-Type": media})
    response.enable_chunked_encoding()
    stream, skip, _ = await _open_stream(api, read)
    if read.group is not None and found.records:
        first = found.records[0].offset
        end = first + 1 if read.limit == 1 else max(first + 1, stream.end_offset)
        api.dead_letters.delivered(read.group, read.partition, first, end, alone=end == first + 1)
    await response.prepare(request)
    try:
        writer = _writer(media, read)
        left = read.limit
        while left > 0 and (chunk := await stream.next()) is not None:
            if api.stopping.is_set():
                raise NotLeader("the node is stopping", where=str(read.partition.tp))
            check(NEEDS, request[ASKED], of_body=False)
            columns = await chunk.columns()
            await lease.hold(max(STREAM_BYTES, 2 * content_bytes(columns)))
            async for count, part in writer.write(columns, left, skip):
                left -= count
                for piece in pieces(part):
                    await response.write(piece)
                # If the client reads fast, no write waits. This lets other requests run.
                await asyncio.sleep(0)
            await _charge(api, read, len(chunk.buffer))
        await response.write(writer.close())
        await response.write_eof()
    except (TierlogError, Problem) as error:
        _log.warning("stream cut off", where=str(read.partition.tp), error=str(error))
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the stream was cut off") from None
    return response


def _writer(media: str, read: Read) -> LineWriter | ArrowWriter:
    if media == ARROW_STREAM:
        return ArrowWriter()
    return LineWriter(value_line if media == TEXT else partial(json_line, as_text=read.as_text))


async def _charge(api: Api, read: Read, nbytes: int) -> None:
    throttle_ms = api.node.quotas.charge(read.client_id, "fetch", nbytes, api.node.clock(), read.user)
    if throttle_ms:
        await api.throttle(throttle_ms)


def _group_read(call: Call) -> str | None:
    group: str | None = call.values["X-Consumer-Group"]
    return group


NEEDS: Final = (on_topic(Permitted.READ), Need(Permitted.READ, ResourceType.GROUP, _group_read))

OPERATIONS: Final = (
    Operation(
        name="getMessages",
        method="GET",
        path="/api/v1/topics/{topic}/partitions/{partition}/messages",
        tag="messages",
        summary="Consume messages",
        description="With `Accept: application/x-ndjson`, `text/plain` or `application/vnd.apache.arrow.stream` the "
        "messages are streamed; read on from the last offset + 1.",
        handler=get_messages,
        needs=NEEDS,
        place=at_leader,
        parameters=(
            *(TOPIC, PARTITION, OFFSET, LIMIT, FROM, TO, WAIT, MAX_BYTES),
            *(ISOLATION, VALUE_ENCODING, AS_GROUP, CLIENT_ID),
        ),
        answers={
            200: Answer(
                "Messages in the order of their offsets; none when there is nothing to read.",
                {
                    JSON: Messages,
                    NDJSON: {"type": "string", "description": "One message per line."},
                    TEXT: {"type": "string", "description": "The values alone, as they are, one per line."},
                    ARROW_STREAM: {"type": "string", "format": "binary"},
                },
            )
        },
        problems=(404, 406, 409, 503),
    ),
)
