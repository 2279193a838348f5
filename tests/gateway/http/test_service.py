"""The node's own addresses: health, readiness, the cluster, metrics, and a description that is true."""

import asyncio

import jsonschema_rs
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cold_tier import errors as cold
from gateway.coordinators import errors as groups
from gateway.http.app import OPERATIONS
from gateway.http.kinds import INTERNAL, kind_of
from hot_tier import errors
from hot_tier.errors import TierlogError
from tests.gateway.http.conftest import Served


async def figures(served: Served) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    reply = await served.get("/metrics")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


async def test_alive_and_ready(served: Served) -> None:
    for path, more in (("/healthz", {}), ("/readyz", {"warnings": []})):
        reply = await served.get(path)
        assert (reply.status, reply.json) == (200, {"status": "ok", **more})
        head = await served.call("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert reply.headers["Server"] == "tierlog"


async def test_not_ready_without_room_on_the_disk(served: Served) -> None:
    served.node.logs.disk.full = True
    reply = await served.get("/readyz")
    assert (reply.status, reply.problem) == (507, "disk-full")
    assert (await served.get("/healthz")).status == 200


async def test_not_ready_while_stopping_or_without_a_controller(served: Served) -> None:
    served.node.image.controller = -1
    reply = await served.get("/readyz")
    assert (reply.status, reply.problem, reply.headers["Retry-After"]) == (503, "not-ready", "1")
    served.api.stopping.set()
    assert (await served.get("/readyz")).problem == "stopping"


async def test_a_full_disk_refuses_writes_with_507_and_still_reads(served: Served) -> None:
    await served.make_topic("orders")
    await served.produce("orders", b"a")
    served.node.logs.disk.full = True
    for path, options in (
        ("/api/v1/topics/orders/messages", {"data": b"v"}),
        ("/api/v1/topics/orders/messages/batch", {"json": {"messages": [{"value": "v"}]}}),
    ):
        reply = await served.post(path, **options)
        assert (reply.status, reply.problem) == (507, "disk-full")
    assert len((await served.messages("orders"))["messages"]) == 1


async def test_the_cluster(served: Served) -> None:
    await served.make_topic("orders", 3)
    cluster = (await served.get("/api/v1/cluster")).json
    assert (cluster["node_id"], cluster["controller"], cluster["topics"], cluster["partitions"]) == (0, 0, 1, 3)
    (broker,) = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == served.kafka
    assert (broker["http_host"], broker["http_port"]) == (served.host, served.port)
    assert len(cluster["cluster_id"]) == 22


async def test_metrics_tell_what_happened(served: Served) -> None:
    await served.make_topic("orders", 2)
    await served.produce("orders", b"a" * 100, b"b" * 100, b"c" * 100)
    await served.post("/api/v1/consumer-groups/g/offsets", json={"topic": "orders", "partition": 0, "offset": 1})
    await served.get("/api/v1/topics/nowhere")
    await served.messages("orders")
    found = await figures(served)
    first = (("partition", "0"), ("topic", "orders"))
    assert found["tierlog_partition_log_end_offset", first] == 3
    assert found["tierlog_partition_high_watermark", first] == 3
    assert found["tierlog_partition_size_bytes", first] > 300
    assert found["tierlog_partition_segments", first] == 1
    assert found["tierlog_topic_in_bytes_total", (("topic", "orders"),)] > 300
    assert found["tierlog_topic_in_batches_total", (("topic", "orders"),)] == 3
    assert found["tierlog_topic_out_bytes_total", (("topic", "orders"),)] > 300
    assert found["tierlog_group_lag_records", (("group", "g"), *first)] == 2
    assert found["tierlog_group_committed_offset", (("group", "g"), *first)] == 1
    assert found["tierlog_http_requests_total", (("operation", "postMessage"), ("status", "200"))] == 3
    assert found["tierlog_http_requests_total", (("operation", "describeTopic"), ("status", "404"))] == 1
    assert found["tierlog_http_request_seconds_count", (("operation", "postMessage"),)] == 3
    assert found["tierlog_http_request_seconds_bucket", (("le", "+Inf"), ("operation", "postMessage"))] == 3
    assert found["tierlog_http_messages_in_total", ()] == 3
    assert found["tierlog_http_connections", ()] >= 1
    assert found["tierlog_log_flush_seconds_count", ()] >= 1
    assert found["tierlog_log_flush_seconds_sum", ()] > 0
    assert found["tierlog_disk_free_bytes", ()] > 0
    assert found["tierlog_log_open_files", ()] >= 1
    assert found["tierlog_kafka_connections", ()] == 0
    assert found["process_open_fds", ()] > 5


async def test_metrics_tell_of_records_that_came_too_old(served: Served) -> None:
    made = {"name": "orders", "config": {"retention.ms": "3600000"}}
    assert (await served.post("/api/v1/topics", json=made)).status == 201
    old = [{"value": "v", "timestamp": 1_000}, {"value": "v", "timestamp": 2_000}]
    assert (await served.post("/api/v1/topics/orders/messages/batch", json={"messages": old})).status == 200
    await served.produce("orders", b"new")
    assert (await figures(served))["tierlog_topic_in_expired_records_total", (("topic", "orders"),)] == 2


async def test_lag_is_known_for_every_group_at_once(served: Served) -> None:
    await served.make_topic("orders", 1)
    await served.produce("orders", b"a", b"b")
    for offset, group in enumerate(("one", "two")):
        commit = {"topic": "orders", "partition": 0, "offset": offset}
        await served.post(f"/api/v1/consumer-groups/{group}/offsets", json=commit)
    found = await figures(served)
    lag = {dict(labels)["group"]: value for (name, labels), value in found.items() if name.endswith("_lag_records")}
    assert lag == {"one": 2, "two": 1}


async def test_the_description_is_openapi_and_names_every_route(served: Served) -> None:
    document = (await served.get("/openapi.json")).json
    assert document["openapi"] == "3.1.0"
    routed = {(route.method, route.resource.canonical) for route in served.http.app.router.routes() if route.resource}
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == routed
    identifiers = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(identifiers)) == len(identifiers) == len(OPERATIONS) + 1
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_every_error_has_a_status_of_its_own() -> None:
    ours = {errors.CorruptMetadata, errors.SettingsError, cold.ManifestInvalid, TierlogError}
    for module in (errors, cold, groups):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, TierlogError) and each not in ours:
                kind = kind_of(each("what"))
                assert kind is not INTERNAL, each
                assert kind.hint


async def test_many_requests_at_once(served: Served) -> None:
    replies = await asyncio.gather(*(served.get("/healthz") for _ in range(200)))
    assert {reply.status for reply in replies} == {200}


@pytest.mark.parametrize("path", ["/openapi.json", "/metrics", "/api/v1/cluster", "/healthz"])
async def test_what_takes_no_parameters_refuses_them(served: Served, path: str) -> None:
    reply = await served.get(f"{path}?verbose=1")
    assert (reply.status, reply.problem) == (400, "bad-parameter")
