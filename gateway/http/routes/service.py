"""The node itself: the cluster as it sees it, whether it lives, whether it can serve, and its metrics."""

from importlib.metadata import version
from typing import Final, Literal

from aiohttp import web

from gateway.http.metrics import exposition
from gateway.http.operation import JSON, Answer, Call, Operation, json_response
from gateway.http.permissions import Open, on_cluster
from gateway.http.problems import NOT_READY, STOPPING, Problem
from gateway.http.schemas import Broker, Cluster, Health, Readiness
from gateway.node import Node
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.cluster.endpoints import CLIENTS, HTTP_PROTOCOLS, KAFKA_PROTOCOLS, Endpoint, first_for
from hot_tier.cluster.model import CONTROLLER_KEY, NO_NODE, BrokerInfo
from hot_tier.errors import MetadataUnavailable

MOST_WARNINGS: Final = 20


async def get_cluster(call: Call) -> web.StreamResponse:
    node = call.api.node
    image = node.image
    metadata_error = None
    try:
        await node.store.get(CONTROLLER_KEY)
    except MetadataUnavailable as error:
        metadata_error = str(error)
    topics = list(image.topics())
    return json_response(
        Cluster(
            cluster_id=node.cluster_id,
            node_id=node.node_id,
            controller=None if image.controller == NO_NODE else image.controller,
            version=version("tierlog"),
            brokers=[_broker(broker, call.principal.listener) for broker in image.brokers()],
            topics=len(topics),
            partitions=sum(topic.partitions for topic in topics),
            metadata_error=metadata_error,
        )
    )


def _broker(broker: BrokerInfo, listener: str) -> Broker:
    """Returns the broker with the addresses that clients of this listener should use."""
    nowhere = Endpoint("", 0, "")
    kafka = first_for(broker.endpoints, CLIENTS, KAFKA_PROTOCOLS) or nowhere
    http = broker.endpoints.get(listener) or first_for(broker.endpoints, CLIENTS, HTTP_PROTOCOLS) or nowhere
    return Broker(
        id=broker.id,
        host=kafka.host,
        port=kafka.port,
        rack=broker.rack,
        host_name=broker.host_name,
        http_host=http.host,
        http_port=http.port,
        draining=broker.draining,
        version=broker.version,
    )


async def get_health(call: Call) -> web.StreamResponse:
    return json_response(Health())


async def get_readiness(call: Call) -> web.StreamResponse:
    """Ready means: in the cluster, with a controller, group offsets read back, room to write. Warnings name topics and
    files, so only those who may describe the cluster see them."""
    node = call.api.node
    if call.api.stopping.is_set():
        raise Problem(STOPPING, "the node is stopping")
    if node.image.broker(node.node_id) is None:
        raise Problem(NOT_READY, f"broker {node.node_id} is not registered in the cluster")
    if node.image.controller == NO_NODE:
        raise Problem(NOT_READY, "the cluster has no controller")
    if node.groups.is_loading:
        raise Problem(NOT_READY, "the offsets of consumer groups are being read back")
    if node.transactions.is_loading:
        raise Problem(NOT_READY, "transactions are being read back")
    node.logs.disk.check_room()
    may_see = await call.api.login.knows(call.request) and call.may(Permitted.DESCRIBE, ResourceType.CLUSTER)
    return json_response(Readiness(warnings=_warnings(node) if may_see else []))


def _warnings(node: Node) -> list[str]:
    held = [] if node.archive is None else node.archive.held()
    stopped = [] if node.archive is None else node.archive.stopped()
    logs = list(node.logs)
    warnings = [node.tokens.trouble] if node.tokens is not None and node.tokens.trouble is not None else []
    warnings += [f"a log takes no writes: {log.failure}" for log in logs if log.failure is not None]
    warnings += [f"a file is damaged: {damage}" for log in logs for damage in log.known_damage()]
    warnings += [f"an archive needs repair: {each.why}" for each in held]
    return (warnings + [f"an archive is stopped: {why}" for why in stopped])[:MOST_WARNINGS]


async def get_metrics(call: Call) -> web.StreamResponse:
    text = await call.api.scrape.text(call.api)
    return web.Response(body=text, headers={"Content-Type": exposition.MEDIA_TYPE})


def _probe(path: str, name: str, summary: str, method: Literal["GET", "HEAD"]) -> Operation:
    ready = path == "/readyz"
    return Operation(
        name=name if method == "GET" else name + "Head",
        method=method,
        path=path,
        tag="service",
        summary=summary,
        handler=get_readiness if ready else get_health,
        needs=Open("orchestrators ask before anybody can log in, and are told nothing of the cluster"),
        answers={200: Answer("Yes.", {JSON: Readiness if ready else Health} if method == "GET" else {})},
        problems=(503,) if ready else (),
    )


OPERATIONS: Final = (
    Operation(
        name="getCluster",
        method="GET",
        path="/api/v1/cluster",
        tag="service",
        summary="Describe the cluster",
        handler=get_cluster,
        needs=(on_cluster(Permitted.DESCRIBE),),
        answers={200: Answer("Its brokers.", {JSON: Cluster})},
    ),
    *(
        _probe(path, name, summary, method)
        for path, name, summary in (
            ("/healthz", "getHealth", "Whether the process lives"),
            ("/readyz", "getReadiness", "Whether the node can serve"),
        )
        for method in ("GET", "HEAD")
    ),
    Operation(
        name="getMetrics",
        method="GET",
        path="/metrics",
        tag="service",
        summary="Figures for Prometheus",
        handler=get_metrics,
        needs=(on_cluster(Permitted.DESCRIBE),),
        answers={200: Answer("The text format.", {"text/plain": {"type": "string"}})},
    ),
)
