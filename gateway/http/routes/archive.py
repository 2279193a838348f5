"""The archive over HTTP: what is in which tier, verification, garbage, restore.

A verification may take hours and answers as it goes: NDJSON, a line per finding, a line of progress every second, and a
summary at the end. A stream without its summary did not finish.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Final

import orjson
from aiohttp import web

from cold_tier.reports import Finding, Planned, VerifyEvent
from gateway.archive_control import ArchiveControl
from gateway.http.api import Api
from gateway.http.archive_schemas import (
    ArchiveRepair,
    ArchiveRestore,
    ArchiveVerification,
    BucketDocument,
    FindingLine,
    GarbageCollected,
    PartitionArchiveDocument,
    PinDocument,
    PinsDocument,
    PlannedLine,
    ProgressLine,
    ProposalDocument,
    ProposalsConsidered,
    RepairedDocument,
    Restored,
    RestoredTopicDocument,
    SummaryLine,
    TopicArchive,
)
from gateway.http.operation import JSON, NDJSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import INT32_MAX, INT64_MAX, PARTITION, TOPIC, Parameter, integer_schema, whole_number
from gateway.http.peers.forwarding import at_controller, at_leader
from gateway.http.problems import NO_ARCHIVE, Problem, as_problem, document
from gateway.http.schemas import Reply
from hot_tier.cluster.model import BrokerInfo, Topic
from hot_tier.errors import NoLeader, NotLeader, TierlogError, UnknownPartition
from hot_tier.ids import NodeId

MAX_SEGMENTS: Final = 10_000
PROGRESS_S: Final = 1.0

OF_TOPIC: Final = Parameter("topic", "query", "Only this topic; all when missing.", TOPIC.schema, TOPIC.parse)
OF_PARTITION: Final = Parameter(
    "partition",
    "query",
    "Only this partition; all when missing.",
    integer_schema(0, INT32_MAX),
    whole_number(0, INT32_MAX),
)
FROM_OFFSET: Final = Parameter(
    "offset",
    "query",
    "List segments from the one that holds this offset on.",
    integer_schema(0, INT64_MAX, default=0),
    whole_number(0, INT64_MAX),
    default=0,
)
SEGMENT_LIMIT: Final = Parameter(
    "limit",
    "query",
    "At most so many segments per partition; 0 for the totals alone.",
    integer_schema(0, MAX_SEGMENTS, default=100),
    whole_number(0, MAX_SEGMENTS),
    default=100,
)


def _archive(api: Api) -> ArchiveControl:
    if api.node.archive is None:
        raise Problem(NO_ARCHIVE, "this node has no bucket")
    return api.node.archive


async def get_topic_archive(call: Call) -> web.StreamResponse:
    archive = _archive(call.api)
    topic = call.api.node.image.topic(call.values["topic"])
    wanted = call.values["partition"]
    if wanted is not None and wanted >= topic.partitions:
        raise UnknownPartition(
            f"there is no partition {wanted}",
            where=topic.name,
            hint=f"The topic has the partitions 0 to {topic.partitions - 1}.",
        )
    numbers = range(topic.partitions) if wanted is None else [wanted]
    told = {} if call.alone else await _told_by_leaders(call, topic, numbers)
    partitions = []
    for number in numbers:
        if number in told:
            partitions.append(told[number])
            continue
        segments, following = await archive.segments(topic, number, call.values["offset"], call.values["limit"])
        partitions.append(PartitionArchiveDocument.of(archive.status(topic, number), segments, following))
    return json_response(TopicArchive(topic=topic.name, id=str(topic.id), bucket=archive.bucket, partitions=partitions))


async def _told_by_leaders(call: Call, topic: Topic, numbers: Iterable[int]) -> dict[int, PartitionArchiveDocument]:
    """Partitions that other brokers lead, by what these say; those of a broker that does not answer are missing."""
    leaders: dict[NodeId, tuple[BrokerInfo, list[int]]] = {}
    for number in numbers:
        try:
            leader = call.api.peers.leader(topic.name, number)
        except NoLeader:
            continue
        if leader is not None:
            leaders.setdefault(leader.id, (leader, []))[1].append(number)

    async def ask(leader: BrokerInfo, of: list[int]) -> dict[int, PartitionArchiveDocument]:
        try:
            told = await call.api.peers.ask(leader, "GET", call.request.path, params=call.request.rel_url.query)
        except (TierlogError, Problem):
            return {}
        found = {each["partition"]: each for each in told["partitions"]}
        return {number: PartitionArchiveDocument.model_validate(found[number]) for number in of if number in found}

    documents: dict[int, PartitionArchiveDocument] = {}
    for part in await asyncio.gather(*(ask(*each) for each in leaders.values())):
        documents |= part
    return documents


async def get_bucket(call: Call) -> web.StreamResponse:
    """A bucket that fails is what is asked for, and no failure of the request."""
    archive = _archive(call.api)
    try:
        await archive.look()
    except TierlogError as error:
        return json_response(BucketDocument(bucket=archive.bucket, works=False, failure=str(error)))
    return json_response(BucketDocument(bucket=archive.bucket, works=True, failure=""))


async def list_pins(call: Call) -> web.StreamResponse:
    image, name = call.api.node.image, call.values["topic"]
    topics = [topic for topic in image.topics() if not topic.internal] if name is None else [image.topic(name)]
    held = await _archive(call.api).pins(topics)
    return json_response(
        PinsDocument(
            pins=[
                PinDocument(
                    topic=topic.name,
                    id=str(topic.id),
                    name=pin.name,
                    created_ms=pin.created_ms,
                    expires_ms=pin.expires_ms,
                )
                for topic, pin in held
            ]
        )
    )


async def verify_archive(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, ArchiveVerification)
    async with aclosing(_archive(call.api).verify(asked.topics)) as events:
        # What is wrong from the start is a problem document; later, a line of the stream has to say it.
        first = await anext(events, None)
        response = web.StreamResponse(headers={"Content-Type": NDJSON})
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        try:
            async for line in verification_lines(first, events):
                await response.write(line.model_dump_json().encode() + b"\n")
                if call.api.stopping.is_set():
                    raise NotLeader("the node is stopping")
        except TierlogError as error:
            problem = document(as_problem(error), call.request.path)
            await response.write(orjson.dumps({"type": "error", "error": problem}, option=orjson.OPT_APPEND_NEWLINE))
        await response.write_eof()
    return response


async def verification_lines(first: VerifyEvent | None, events: AsyncIterator[VerifyEvent]) -> AsyncIterator[Reply]:
    """What is said of a verification, with a summary at its end."""
    partitions = segments = checked_bytes = problems = orphans = 0
    said = time.monotonic()
    event = first
    while event is not None:
        if isinstance(event, Planned):
            partitions += 1
            yield PlannedLine(topic=event.topic, partition=event.partition, segments=event.segments)
        elif isinstance(event, Finding):
            problems += event.is_problem
            orphans += not event.is_problem
            yield FindingLine(kind=event.kind, where=event.where, what=event.what, problem=event.is_problem)
        else:
            segments += 1
            checked_bytes += event.bytes
            if time.monotonic() - said >= PROGRESS_S:
                said = time.monotonic()
                yield ProgressLine(segments=segments, bytes=checked_bytes)
        event = await anext(events, None)
    yield SummaryLine(partitions=partitions, segments=segments, bytes=checked_bytes, problems=problems, orphans=orphans)


async def collect_garbage(call: Call) -> web.StreamResponse:
    """Each broker of what it leads."""
    collected = await _archive(call.api).collect_garbage()
    if not call.alone:
        for broker, told in await call.api.view.everywhere("POST", call.request.path):
            if isinstance(told, TierlogError | Problem):
                collected.failed.append(f"broker {broker.id}: {told}")
                continue
            collected.removed += told["removed"]
            collected.orphans += told["orphans"]
            collected.of_deleted_topics += told["of_deleted_topics"]
            collected.failed += told["failed"]
    return json_response(GarbageCollected.of(collected))


async def consider_proposals(call: Call) -> web.StreamResponse:
    topic = call.api.node.image.topic(call.values["topic"])
    considered = await _archive(call.api).consider_proposals(topic, call.values["partition"])
    return json_response(ProposalsConsidered(proposals=[ProposalDocument.of(each) for each in considered]))


async def repair_archive(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, ArchiveRepair)
    topic = call.api.node.image.topic(call.values["topic"])
    repaired = await _archive(call.api).repair(topic, call.values["partition"], asked.decision)
    return json_response(RepairedDocument.of(repaired))


async def restore_archive(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, ArchiveRestore)
    restored = await _archive(call.api).restore(asked.topics, asked.config)
    return json_response(Restored(topics=[RestoredTopicDocument.of(topic) for topic in restored]))


OPERATIONS: Final = (
    Operation(
        name="getBucket",
        method="GET",
        path="/api/v1/archive",
        tag="archive",
        summary="Whether the bucket works",
        description="The node asks its bucket for something small before it answers, and waits a few seconds for it.",
        handler=get_bucket,
        answers={200: Answer("The bucket, and why it fails if it does.", {JSON: BucketDocument})},
        problems=(503,),
    ),
    Operation(
        name="listPins",
        method="GET",
        path="/api/v1/archive/pins",
        tag="archive",
        summary="Jobs that hold topics' retention",
        description="While a pin holds, nothing of the topic's archive expires or is deleted.",
        handler=list_pins,
        parameters=(OF_TOPIC,),
        answers={200: Answer("Those that hold now, as the bucket says.", {JSON: PinsDocument})},
        problems=(404, 503),
    ),
    Operation(
        name="getTopicArchive",
        method="GET",
        path="/api/v1/topics/{topic}/archive",
        tag="archive",
        summary="What of a topic is in which tier",
        description="Per partition: what is local, what is in the bucket, what waits to be archived, and the archived "
        "segments with the names of their objects.",
        handler=get_topic_archive,
        parameters=(TOPIC, OF_PARTITION, FROM_OFFSET, SEGMENT_LIMIT),
        answers={200: Answer("Its partitions, in order.", {JSON: TopicArchive})},
        problems=(404, 503),
    ),
    Operation(
        name="verifyArchive",
        method="POST",
        path="/api/v1/archive/verify",
        tag="archive",
        summary="Check every archived object against its manifest",
        description="Reads everything. One JSON object per line, told apart by `type`: `planned` (a partition and how "
        "many segments it has), `progress`, `finding` (`problem` is false for an orphan, which waits for its "
        "collection), `summary` at the end, or `error` with a problem document where it had to stop.",
        handler=verify_archive,
        body=Document(ArchiveVerification),
        answers={
            200: Answer("Findings as they are made.", {NDJSON: {"type": "string", "description": "One per line."}})
        },
        problems=(404, 413, 415, 503),
    ),
    Operation(
        name="collectArchiveGarbage",
        method="POST",
        path="/api/v1/archive/gc",
        tag="archive",
        summary="Delete now what the archive no longer needs",
        description="What the brokers would delete by themselves in time: grace periods and ages hold.",
        handler=collect_garbage,
        answers={200: Answer("How many objects went.", {JSON: GarbageCollected})},
        problems=(503,),
    ),
    Operation(
        name="considerProposals",
        method="POST",
        path="/api/v1/topics/{topic}/partitions/{partition}/archive/proposals",
        tag="archive",
        summary="Publish or refuse now what a compaction proposes",
        description="The partition's leader reads what was rewritten, compares it with the manifest, and publishes it. "
        "Without being asked it looks as often as it looks for garbage.",
        handler=consider_proposals,
        place=at_leader,
        parameters=(TOPIC, PARTITION),
        answers={200: Answer("What became of each.", {JSON: ProposalsConsidered})},
        problems=(404, 503),
    ),
    Operation(
        name="repairArchive",
        method="POST",
        path="/api/v1/topics/{topic}/partitions/{partition}/archive/repair",
        tag="archive",
        summary="Decide what becomes of an archive that is stopped",
        description="An archive stops where the bucket went back to an older state, or where somebody else has "
        "published to it. The partition's leader does what was decided, and archiving goes on.",
        handler=repair_archive,
        place=at_leader,
        parameters=(TOPIC, PARTITION),
        body=Document(ArchiveRepair),
        answers={200: Answer("It is in order again.", {JSON: RepairedDocument})},
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="restoreArchive",
        method="POST",
        path="/api/v1/archive/restore",
        tag="archive",
        summary="Bring topics back from the bucket",
        description="With their ids, settings, offsets, leader epochs and producers. Records that were never archived "
        "are not there; offsets go on where the archive ends.",
        handler=restore_archive,
        place=at_controller,
        body=Document(ArchiveRestore),
        answers={200: Answer("They are served.", {JSON: Restored})},
        problems=(404, 409, 413, 415, 503),
    ),
)
