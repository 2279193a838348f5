"""The archive over HTTP: which tier holds what, verification, garbage, restore.

A verification may take hours and answers while it runs: NDJSON with a line per finding, a line of progress every
second, and a summary at the end. A stream without its summary did not finish.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

import orjson
from aiohttp import web

from cold_tier.reports import Finding, Planned, TopicFacts, VerifyEvent
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
    TopicCost,
)
from gateway.http.operation import JSON, NDJSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import INT32_MAX, INT64_MAX, PARTITION, TOPIC, Parameter, integer_schema, whole_number
from gateway.http.peers.forwarding import at_controller, at_leader
from gateway.http.permissions import SEEN_TOPICS, on_cluster, on_topic
from gateway.http.problems import NO_ARCHIVE, Problem, as_problem, document
from gateway.http.schemas import Reply
from hot_tier.clock import steady_s
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.cluster.internal_topics import stays_local
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

PLANNED_RETENTION: Final = Parameter(
    "retention_ms",
    "query",
    "Reckon with this retention; as it is when missing.",
    integer_schema(0, INT64_MAX),
    whole_number(0, INT64_MAX),
)
REPLAYS: Final = Parameter(
    "replays",
    "query",
    "How often all of it is read per month.",
    integer_schema(0, 1_000_000, default=1),
    whole_number(0, 1_000_000),
    default=1,
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
    offset, limit = call.values["offset"], call.values["limit"]
    partitions = await describe_partitions(call, topic, numbers, offset, limit)
    return json_response(TopicArchive(topic=topic.name, id=str(topic.id), bucket=archive.bucket, partitions=partitions))


async def describe_partitions(
    call: Call, topic: Topic, numbers: Sequence[int], offset: int, limit: int
) -> list[PartitionArchiveDocument]:
    archive = _archive(call.api)
    query = {"offset": str(offset), "limit": str(limit)} | ({"partition": str(numbers[0])} if len(numbers) == 1 else {})
    told = {} if call.alone else await _told_by_leaders(call, topic, numbers, query)
    partitions = []
    for number in numbers:
        if number in told:
            partitions.append(told[number])
            continue
        segments, following = await archive.segments(topic, number, offset, limit)
        partitions.append(PartitionArchiveDocument.of(archive.status(topic, number), segments, following))
    return partitions


async def _told_by_leaders(
    call: Call, topic: Topic, numbers: Sequence[int], query: Mapping[str, str]
) -> dict[int, PartitionArchiveDocument]:
    """Returns the partitions that other brokers lead, as those describe them, without brokers that do not answer."""
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
            told = await call.api.peers.ask(leader, "GET", f"/api/v1/topics/{topic.name}/archive", params=query)
        except (TierlogError, Problem):
            return {}
        found = {each["partition"]: each for each in told["partitions"]}
        return {number: PartitionArchiveDocument.model_validate(found[number]) for number in of if number in found}

    documents: dict[int, PartitionArchiveDocument] = {}
    for part in await asyncio.gather(*(ask(*each) for each in leaders.values())):
        documents |= part
    return documents


async def get_topic_cost(call: Call) -> web.StreamResponse:
    topic = call.api.node.image.topic(call.values["topic"])
    partitions = await describe_partitions(call, topic, range(topic.partitions), 0, 0)
    archived = [each.archived for each in partitions if each.archived is not None]
    config = call.api.node.partitions.config(topic)
    facts = TopicFacts(
        partitions=len(archived),
        segments=sum(each.segments for each in archived),
        rows_bytes=sum(each.rows_bytes for each in archived),
        index_bytes=sum(each.index_bytes for each in archived),
        log_bytes=sum(each.log_bytes for each in archived),
        span_ms=max(((each.max_timestamp or 0) - (each.min_timestamp or 0) for each in archived), default=0),
        retention_ms=config.retention_ms,
        local_retention_ms=config.local_retention_ms,
    )
    retention_ms, replays = call.values["retention_ms"], call.values["replays"]
    found = _archive(call.api).cost(facts, retention_ms=retention_ms, replays=replays)
    return json_response(TopicCost.of(topic.name, facts, found))


async def get_bucket(call: Call) -> web.StreamResponse:
    """Reports whether the bucket works. If the bucket fails, the request still succeeds."""
    archive = _archive(call.api)
    try:
        await archive.look()
    except TierlogError as error:
        return json_response(BucketDocument(bucket=archive.bucket, works=False, failure=str(error)))
    return json_response(BucketDocument(bucket=archive.bucket, works=True, failure=""))


async def list_pins(call: Call) -> web.StreamResponse:
    image, name = call.api.node.image, call.values["topic"]
    topics = [topic for topic in image.topics() if not stays_local(topic)] if name is None else [image.topic(name)]
    topics = [topic for topic in topics if call.may(Permitted.DESCRIBE, ResourceType.TOPIC, topic.name)]
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
        # An error before the first event becomes a problem document. A later error must be a line of the stream.
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
    """Yields the lines for a verification, and a summary at the end."""
    partitions = segments = checked_bytes = problems = orphans = 0
    said = steady_s()
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
            if steady_s() - said >= PROGRESS_S:
                said = steady_s()
                yield ProgressLine(segments=segments, bytes=checked_bytes)
        event = await anext(events, None)
    yield SummaryLine(partitions=partitions, segments=segments, bytes=checked_bytes, problems=problems, orphans=orphans)


async def collect_garbage(call: Call) -> web.StreamResponse:
    """Each broker collects the garbage of the partitions that it leads."""
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
        needs=(on_cluster(Permitted.DESCRIBE),),
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
        needs=(on_topic(Permitted.DESCRIBE), SEEN_TOPICS),
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
        needs=(on_topic(Permitted.DESCRIBE),),
        parameters=(TOPIC, OF_PARTITION, FROM_OFFSET, SEGMENT_LIMIT),
        answers={200: Answer("Its partitions, in order.", {JSON: TopicArchive})},
        problems=(404, 503),
    ),
    Operation(
        name="getTopicCost",
        method="GET",
        path="/api/v1/topics/{topic}/archive/cost",
        tag="archive",
        summary="What a topic costs per month, beside local disks alone",
        description="Reckoned from what is archived and the prices of `[cost]`, as `tierlog cost` does.",
        handler=get_topic_cost,
        needs=(on_topic(Permitted.DESCRIBE),),
        parameters=(TOPIC, PLANNED_RETENTION, REPLAYS),
        answers={200: Answer("Line by line.", {JSON: TopicCost})},
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
        needs=(on_cluster(Permitted.ALTER),),
        body=Document(ArchiveVerification),
        reads=True,
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
        needs=(on_cluster(Permitted.ALTER),),
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
        needs=(on_topic(Permitted.ALTER),),
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
        needs=(on_cluster(Permitted.ALTER),),
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
        needs=(on_cluster(Permitted.ALTER),),
        place=at_controller,
        body=Document(ArchiveRestore),
        answers={200: Answer("They are served.", {JSON: Restored})},
        problems=(404, 409, 413, 415, 503),
    ),
)
