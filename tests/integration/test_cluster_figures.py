"""Figures of a cluster, through any broker: those of all brokers together; and the lag of groups whose coordinator does
not lead what they read."""

import pytest
import pytest_asyncio
import uvloop

from tests.support.members import Members, members
from tests.support.waiting import until

GROUPS = "/api/v1/consumer-groups"


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory):
    async with members(tmp_path_factory.mktemp("cluster")) as found:
        yield found


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def sample(cluster: Members) -> None:
    for member in cluster:
        await member.api.sampler.sample()
        member.api.totals._until_s = 0


async def test_every_broker_tells_the_figures_of_all(cluster: Members) -> None:
    await cluster.make_topic("orders")
    leaders = {cluster.leader_of("orders", number) for number in range(3)}
    assert len(leaders) == 3, "placement spreads the partitions"
    for number in range(3):
        for _ in range(number + 1):
            reply = await cluster[1].post(f"/api/v1/topics/orders/messages?partition={number}", data=b"v" * 100)
            assert reply.status == 200
    for number in range(3):
        commit = {"topic": "orders", "partition": number, "offset": 1}
        assert (await cluster[1].post(f"{GROUPS}/billing/offsets", json=commit)).status == 200
    await until(lambda: all(member.broker.node.groups.is_loading is False for member in cluster))
    await sample(cluster)
    for member in cluster:
        told = (await member.get("/api/v1/topics?figures=true&sort=records&descending=true&internal=false")).json
        [topic] = told["topics"]
        assert (topic["figures"]["records"], topic["reads"]) == (6, {"groups": 1, "lag": 3}), member.node_id
        [group] = (await member.get(f"{GROUPS}?figures=true")).json["groups"]
        assert group["figures"] == {"topics": 1, "lag": 3}
        figures = (await member.get("/api/v1/cluster/figures")).json
        assert [each["broker"] for each in figures["brokers"]] == [1, 2, 3] and figures["silent"] == []
        history = (await member.get(f"{GROUPS}/billing/lag")).json["lag"]
        assert history["hour"]["values"][-1] == 3


async def test_one_that_does_not_answer_is_named(cluster: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = cluster[1].api.peers.ask

    async def deaf(broker, method, path, **options):
        told = await ask(broker, method, path, **options)
        return {"not": "figures"} if broker.id == 3 and path.endswith("figures") else told

    monkeypatch.setattr(cluster[1].api.peers, "ask", deaf)
    reply = await cluster[1].get("/api/v1/cluster/figures")
    assert reply.status == 200 and reply.json["silent"] == [3]
    assert [each["broker"] for each in reply.json["brokers"]] == [1, 2]
