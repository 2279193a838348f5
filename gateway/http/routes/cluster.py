"""Moves replicas to other brokers: spreads the load evenly, empties a broker, and lists moves that are not done.

An answer says that moves have begun; `GET /api/v1/cluster/moves` lists them until they are done. Any broker can be
asked. The rules are in `hot_tier.cluster.moves`.
"""

from typing import Final, Literal

from aiohttp import web
from pydantic import Field

from gateway.http.operation import JSON, Answer, Call, Document, Handler, Operation, json_response
from gateway.http.parameters import INT32_MAX, Parameter, integer_schema, whole_number
from gateway.http.permissions import on_cluster
from gateway.http.schemas import Reply, Request
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.elections import reassignment_target
from hot_tier.ids import NodeId

BROKER: Final = Parameter(
    "broker", "path", "The broker's number.", integer_schema(0, INT32_MAX), whole_number(0, INT32_MAX), required=True
)


class Rebalance(Request):
    dry_run: bool = Field(default=False, description="Only say what would move.")


class PlannedMove(Reply):
    topic: str
    partition: int
    before: list[int] = Field(description="The brokers that hold it, the preferred leader first.")
    after: list[int]


class RebalancePlan(Reply):
    moves: list[PlannedMove]


class OngoingMove(Reply):
    topic: str
    partition: int
    replicas: list[int] = Field(description="Old and new brokers, the preferred leader first.")
    adding: list[int]
    removing: list[int]
    isr: list[int]


class OngoingMoves(Reply):
    moves: list[OngoingMove]


class Decommissioning(Reply):
    broker: int
    draining: bool
    replicas: int = Field(description="What it still holds; once it is 0 the broker can be switched off for good.")


async def get_moves(call: Call) -> web.StreamResponse:
    return json_response(
        OngoingMoves(
            moves=[
                OngoingMove(
                    topic=tp.topic,
                    partition=tp.partition,
                    replicas=list(state.replicas),
                    adding=list(state.adding),
                    removing=list(state.removing),
                    isr=list(state.isr),
                )
                for tp, state in sorted(call.api.node.moves.reassignments().items(), key=lambda item: item[0])
            ]
        )
    )


async def rebalance(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, Rebalance)
    image = call.api.node.image
    held: dict[tuple[str, int], list[int]] = {
        (topic.name, index): list(reassignment_target(state))
        for topic in image.topics()
        for index, state in enumerate(image.partition_states(topic))
    }
    plan = await call.api.node.moves.rebalance(dry_run=asked.dry_run)
    return json_response(
        RebalancePlan(
            moves=[
                PlannedMove(topic=tp.topic, partition=tp.partition, before=held.get(tp, []), after=list(replicas))
                for tp, replicas in sorted(plan.items())
            ]
        )
    )


async def decommission(call: Call) -> web.StreamResponse:
    await call.api.node.moves.decommission(NodeId(call.values["broker"]))
    return _decommissioning(call)


async def recommission(call: Call) -> web.StreamResponse:
    await call.api.node.moves.recommission(NodeId(call.values["broker"]))
    return _decommissioning(call)


async def get_decommissioning(call: Call) -> web.StreamResponse:
    await call.api.node.moves.known(NodeId(call.values["broker"]))
    return _decommissioning(call)


def _decommissioning(call: Call) -> web.StreamResponse:
    node = NodeId(call.values["broker"])
    broker = call.api.node.image.broker(node)
    return json_response(
        Decommissioning(
            broker=node,
            draining=broker is not None and broker.draining,
            replicas=call.api.node.moves.replicas_on(node),
        )
    )


def _of_broker(
    method: Literal["GET", "POST", "DELETE"], name: str, summary: str, handler: Handler, *problems: int
) -> Operation:
    needed = Permitted.DESCRIBE if method == "GET" else Permitted.ALTER
    return Operation(
        name=name,
        method=method,
        path="/api/v1/cluster/brokers/{broker}/decommission",
        tag="service",
        summary=summary,
        handler=handler,
        needs=(on_cluster(needed),),
        parameters=(BROKER,),
        answers={200: Answer("What the broker still holds.", {JSON: Decommissioning})},
        problems=(404, *problems, 503),
    )


OPERATIONS: Final = (
    Operation(
        name="getMoves",
        method="GET",
        path="/api/v1/cluster/moves",
        tag="service",
        summary="List the partitions that are on their way to other brokers",
        handler=get_moves,
        needs=(on_cluster(Permitted.DESCRIBE),),
        answers={200: Answer("The moves that are not done.", {JSON: OngoingMoves})},
    ),
    Operation(
        name="rebalance",
        method="POST",
        path="/api/v1/cluster/rebalance",
        tag="service",
        summary="Even out replicas and preferred leaders over the brokers",
        handler=rebalance,
        needs=(on_cluster(Permitted.ALTER),),
        body=Document(Rebalance),
        answers={200: Answer("What begins to move, or would.", {JSON: RebalancePlan})},
        problems=(503,),
    ),
    _of_broker("POST", "decommission", "Begin to move everything off a broker", decommission, 409),
    _of_broker("DELETE", "recommission", "Let a broker take replicas again", recommission),
    _of_broker("GET", "getDecommissioning", "See what a broker still holds", get_decommissioning),
)
