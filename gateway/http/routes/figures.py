"""Figures of brokers, over the last day, and what brokers tell each other for their lists."""

from typing import Annotated, Any, Final

import orjson
from aiohttp import web
from pydantic import Field, ValidationError

from gateway.http.figures.lag import TOPICS_AT_ONCE
from gateway.http.figures.merged import OWN_PATH
from gateway.http.figures.values import BrokerFigures, ClusterFigures, HistoryDocument, OwnFigures
from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import GROUP
from gateway.http.peers.forwarding import at_coordinator
from gateway.http.permissions import on_cluster, on_group
from gateway.http.problems import Problem
from gateway.http.schemas import Reply, Request, TopicName
from gateway.off_loop import off_loop
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.errors import TierlogError


class WantedEnds(Request):
    topics: Annotated[list[TopicName], Field(max_length=TOPICS_AT_ONCE)]


class Ends(Reply):
    topics: dict[str, list[list[int]]] = Field(
        description="Partition, log start and high watermark of each partition that this broker leads."
    )


class LagHistory(Reply):
    group: str
    lag: HistoryDocument | None = Field(description="Null before the first measurement, and for too many groups.")


async def get_figures(call: Call) -> web.StreamResponse:
    api = call.api
    http = 0 if api.server is None else api.server.connections
    brokers = [api.sampler.figures(0 if api.kafka is None else len(api.kafka.connections), http)]
    silent: list[int] = []
    if not call.alone:
        for broker, told in await api.view.everywhere("GET", call.request.path):
            found = None if isinstance(told, TierlogError | Problem) else _read(told)
            if found is None:
                silent.append(broker.id)
            else:
                brokers.append(found)
    brokers.sort(key=lambda each: each.broker)
    return json_response(ClusterFigures.model_construct(brokers=brokers, silent=sorted(silent)))


def _read(told: Any) -> BrokerFigures | None:
    """Returns what another broker tells of itself; None if it is of a version that tells something else."""
    try:
        return BrokerFigures.model_validate(told["brokers"][0])
    except (ValidationError, LookupError, TypeError):
        return None


async def get_own_figures(call: Call) -> web.StreamResponse:
    own = call.api.totals.own()
    body = await off_loop(len(own.topics) + len(own.groups), OwnFigures.model_dump_json, own)
    return web.Response(body=body.encode(), content_type=JSON)


async def list_ends(call: Call) -> web.StreamResponse:
    asked: WantedEnds = call.body
    image, partitions = call.api.node.image, call.api.node.partitions
    ends: dict[str, list[list[int]]] = {}
    turn = call.api.node.lane.turn()
    for topic in filter(None, map(image.find_topic, dict.fromkeys(asked.topics))):
        told = ends[topic.name] = []
        async for number in turn.through(range(topic.partitions)):
            led = partitions.find(topic.name, number)
            if led is not None:
                told.append([number, led.log_start_offset, led.high_watermark])
    body = await off_loop(sum(map(len, ends.values())), orjson.dumps, {"topics": ends})
    return web.Response(body=body, content_type=JSON)


async def get_lag_history(call: Call) -> web.StreamResponse:
    group = call.values["group"]
    history = call.api.sampler.lag.history(group)
    return json_response(LagHistory(group=group, lag=None if history is None else HistoryDocument.of(history)))


OPERATIONS: Final = (
    Operation(
        name="getFigures",
        method="GET",
        path="/api/v1/cluster/figures",
        tag="service",
        summary="Throughput, lag, disks, backlog and cost of each broker, now and over the last day",
        handler=get_figures,
        needs=(on_cluster(Permitted.DESCRIBE),),
        answers={200: Answer("As measured within the last ten seconds or so.", {JSON: ClusterFigures})},
    ),
    Operation(
        name="getOwnFigures",
        method="GET",
        path=OWN_PATH,
        tag="service",
        summary="Figures of the topics and groups that this broker leads and coordinates",
        description="Brokers ask each other for them; `GET /api/v1/topics` and `GET /api/v1/consumer-groups` with "
        "`figures=true` show those of all brokers.",
        handler=get_own_figures,
        needs=(on_cluster(Permitted.DESCRIBE),),
        answers={200: Answer("By name.", {JSON: OwnFigures})},
    ),
    Operation(
        name="listEnds",
        method="POST",
        path="/api/v1/cluster/ends",
        tag="service",
        summary="Where the partitions that this broker leads begin and end",
        handler=list_ends,
        needs=(on_cluster(Permitted.DESCRIBE),),
        body=Document(WantedEnds),
        reads=True,
        answers={200: Answer("Topics that do not exist are left out.", {JSON: Ends})},
        problems=(413, 415),
    ),
    Operation(
        name="getLagHistory",
        method="GET",
        path="/api/v1/consumer-groups/{group}/lag",
        tag="groups",
        summary="A group's lag over the last hour and the last day",
        handler=get_lag_history,
        needs=(on_group(Permitted.DESCRIBE),),
        place=at_coordinator,
        parameters=(GROUP,),
        answers={200: Answer("Kept by the group's coordinator since it became that.", {JSON: LagHistory})},
        problems=(503,),
    ),
)
