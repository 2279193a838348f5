"""A partition that another broker leads, read from its start and written through that broker.

It serves rare cases: copies of dead-lettered records, which are in a partition of their own, and messages whose key or
headers do not fit into the HTTP headers of a request between brokers.
"""

from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

import orjson

from gateway.http.message_codec import new_message
from gateway.http.peers.peers import Peers
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import NotEnoughReplicas, NotLeader
from hot_tier.ids import Offset, TopicPartition
from hot_tier.record.records import NewRecord, Record

PAGE: Final = "1000"
WAIT_MS: Final = "5000"


class RemotePartition:
    def __init__(self, peers: Peers, leader: BrokerInfo, tp: TopicPartition) -> None:
        self._peers = peers
        self._leader = leader
        self.tp = tp

    async def records(self) -> AsyncIterator[Sequence[Record]]:
        """Yields all records, oldest first. Waits for those that are not committed yet."""
        topic = await self._peers.ask(self._leader, "GET", f"/api/v1/topics/{self.tp.topic}")
        bounds = topic["partitions"][self.tp.partition]
        at, end = bounds["log_start_offset"], bounds["log_end_offset"]
        if end is None:
            raise NotLeader(f"broker {self._leader.id} does not lead this partition any more", where=str(self.tp))
        path = f"/api/v1/topics/{self.tp.topic}/partitions/{self.tp.partition}/messages"
        while at < end:
            params = {"offset": str(at), "limit": PAGE, "wait_ms": WAIT_MS}
            told = await self._peers.ask(self._leader, "GET", path, params=params)
            if told["next_offset"] == at:
                raise NotEnoughReplicas(f"offset {at} is not committed yet", where=str(self.tp), hint="try again")
            yield [_record(each) for each in told["messages"]]
            at = told["next_offset"]

    async def append(self, record: NewRecord) -> Offset:
        """Returns the record's offset when every in-sync replica has it."""
        return Offset((await self.send(record))["offset"])

    async def send(self, record: NewRecord, headers: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
        """Returns the leader's result for the record when every in-sync replica has it."""
        data = orjson.dumps({"messages": [new_message(self.tp.partition, record)]})
        path = f"/api/v1/topics/{self.tp.topic}/messages/batch"
        told = await self._peers.ask(self._leader, "POST", path, headers=headers, data=data)
        stored: dict[str, Any] = told["results"][0]
        return stored


def _record(message: dict[str, Any]) -> Record:
    value = message["value"]
    headers = tuple((each["key"], _told(each, "value")) for each in message["headers"])
    timestamp, key = message["timestamp"], _told(message, "key")
    return Record(message["offset"], timestamp, 0, key, None if value is None else b64decode(value), headers)


def _told(said: dict[str, Any], name: str) -> bytes | None:
    text = said[name]
    if text is None:
        return None
    return b64decode(text) if said.get(f"{name}_encoding") == "base64" else str(text).encode()
