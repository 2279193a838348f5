"""A cluster whose brokers call each other at listeners of their own."""

from pathlib import Path

from gateway.listener import ListenerSettings
from tests.support.members import members
from tests.support.waiting import until

ANYWHERE = "127.0.0.1:0"
LISTENERS = {
    "kafka": ListenerSettings(takes=("clients",)),
    "http": ListenerSettings(takes=("clients",)),
    "inside": ListenerSettings("plaintext", ANYWHERE, takes=("peers",)),
    "inside-http": ListenerSettings("http", ANYWHERE, takes=("peers",)),
}


async def test_records_are_copied_and_requests_passed_on_between_listeners_for_peers(tmp_path: Path) -> None:
    async with members(tmp_path, 3, listener=LISTENERS) as cluster:
        await cluster.make_topic("t", partitions=1, replicas=3)
        other = cluster.not_leading("t", 0)
        stored = await other.post("/api/v1/topics/t/messages?partition=0", data=b"v")
        assert stored.status == 200, stored
        assert other.api.peers.forwarded == 1
        logs = [member.broker.node.partitions.find_local("t", 0) for member in cluster]
        await until(lambda: all(log is not None and log.log_end_offset == 1 for log in logs))
        read = await other.get("/api/v1/topics/t/partitions/0/messages?offset=0")
        assert (read.status, len(read.json["messages"])) == (200, 1)
