"""Dead letters over HTTP: set a record aside, report a failed delivery, see what was set aside."""

from typing import Final

from aiohttp import web

from gateway.delivery.dead_letters import DeadLetter
from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import GROUP
from gateway.http.peers.cluster_view import Bounds
from gateway.http.peers.forwarding import at_leader_in_body
from gateway.http.permissions import SEEN_TOPICS, on_group, on_topic_in_body
from gateway.http.routes.reading import out_of_range
from gateway.http.schemas import (
    DeadLetterCount,
    DeadLettered,
    DeadLetterTopic,
    FailingRecord,
    FailureCounted,
    GroupDeadLetters,
    NewDeadLetter,
    NewFailure,
)
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.errors import OffsetOutOfRange


async def post_dead_letter(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, NewDeadLetter)
    partition = call.api.node.partitions.get(asked.topic, asked.partition)
    try:
        letter = await call.api.dead_letters.dead_letter(call.values["group"], partition, asked.offset, asked.reason)
    except OffsetOutOfRange as error:
        raise out_of_range(error, Bounds.of(partition)) from error
    return json_response(_shown(letter), 200 if letter.duplicate else 201)


async def post_failure(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, NewFailure)
    partition = call.api.node.partitions.get(asked.topic, asked.partition)
    try:
        counted = await call.api.dead_letters.fail(
            call.values["group"], partition, asked.offset, asked.reason, asked.max_deliveries
        )
    except OffsetOutOfRange as error:
        raise out_of_range(error, Bounds.of(partition)) from error
    letter = counted.dead_letter
    return json_response(
        FailureCounted(
            failures=counted.failures,
            max_deliveries=counted.max_deliveries,
            dead_lettered=letter is not None,
            dead_letter=None if letter is None else _shown(letter),
        )
    )


async def get_dead_letters(call: Call) -> web.StreamResponse:
    node, letters, group = call.api.node, call.api.dead_letters, call.values["group"]
    topics = []
    for source, topic in letters.topics.of_group(group):
        if not call.may(Permitted.DESCRIBE, ResourceType.TOPIC, source):
            continue
        bounds = await call.api.view.bounds(topic, range(topic.partitions))
        counts = []
        for number, found in sorted(bounds.items()):
            if not isinstance(found, Bounds):
                raise found
            counts.append(DeadLetterCount(partition=number, count=found.high_watermark - found.log_start_offset))
        topics.append(
            DeadLetterTopic(
                topic=source,
                dead_letter_topic=topic.name,
                count=sum(each.count for each in counts),
                partitions=[each for each in counts if each.count],
            )
        )
    failing = [
        FailingRecord(
            topic=node.image.topic_by_id(topic_id).name,
            partition=number,
            offset=offset,
            failures=failure.times,
            reason=failure.reason,
            last_failure_ms=failure.at_ms,
        )
        for topic_id, number, offset, failure in await letters.failing(group)
        if call.may(Permitted.DESCRIBE, ResourceType.TOPIC, node.image.topic_by_id(topic_id).name)
    ]
    return json_response(GroupDeadLetters(group=group, topics=topics, failing=failing))


def _shown(letter: DeadLetter) -> DeadLettered:
    return DeadLettered(
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        committed_offset=letter.committed_offset,
    )


OPERATIONS: Final = (
    Operation(
        name="postDeadLetter",
        method="POST",
        path="/api/v1/consumer-groups/{group}/dead-letters",
        tag="dead letters",
        summary="Set a record aside",
        description="Copies the record to `<topic>.<group>.dlq` with the reason and its origin in the headers, once.",
        handler=post_dead_letter,
        needs=(on_group(Permitted.READ), on_topic_in_body(Permitted.READ)),
        place=at_leader_in_body,
        parameters=(GROUP,),
        body=Document(NewDeadLetter),
        answers={
            201: Answer("Copied now.", {JSON: DeadLettered}),
            200: Answer("It had been copied before.", {JSON: DeadLettered}),
        },
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="postFailure",
        method="POST",
        path="/api/v1/consumer-groups/{group}/failures",
        tag="dead letters",
        summary="Count a failed delivery",
        description="The failure that reaches the limit sets the record aside.",
        handler=post_failure,
        needs=(on_group(Permitted.READ), on_topic_in_body(Permitted.READ)),
        place=at_leader_in_body,
        parameters=(GROUP,),
        body=Document(NewFailure),
        answers={200: Answer("Counted.", {JSON: FailureCounted})},
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="getDeadLetters",
        method="GET",
        path="/api/v1/consumer-groups/{group}/dead-letters",
        tag="dead letters",
        summary="What was set aside, and what is failing",
        handler=get_dead_letters,
        needs=(on_group(Permitted.DESCRIBE), SEEN_TOPICS),
        parameters=(GROUP,),
        answers={200: Answer("Counts by topic and partition, and records that have failed.", {JSON: GroupDeadLetters})},
        problems=(503,),
    ),
)
