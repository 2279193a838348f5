"""Sends events of the audit to the broker that leads a partition of it, from a broker that leads none."""

from collections.abc import Sequence

import orjson

from gateway.http.message_codec import new_message
from gateway.http.peers.peers import Peers
from gateway.http.problems import Problem
from gateway.node import Node
from hot_tier.errors import OutcomeUnknown
from hot_tier.ids import NodeId, TopicPartition
from hot_tier.record.records import NewRecord


class AuditEvents:
    def __init__(self, node: Node) -> None:
        # Its own connections: they outlive the HTTP server, until the last events are sent.
        self._peers = Peers(node)

    async def append(self, leader: NodeId, tp: TopicPartition, records: Sequence[NewRecord]) -> None:
        """Returns when the leader says that every in-sync replica has the records."""
        broker = self._peers.registered(leader, str(tp))
        assert broker is not None, "this broker leads it"
        data = orjson.dumps({"messages": [new_message(tp.partition, record) for record in records]})
        try:
            told = await self._peers.ask(broker, "POST", f"/api/v1/topics/{tp.topic}/messages/batch", data=data)
        except Problem as refused:
            raise OutcomeUnknown(f"broker {leader} refuses it: {refused.detail}", where=str(tp)) from refused
        if any("error" in result for result in told["results"]):
            raise OutcomeUnknown(f"broker {leader} wrote it only in part", where=str(tp))

    async def close(self) -> None:
        await self._peers.close()
