"""Other brokers as this one reaches them over HTTP: connections, the guard against loops, and what a failure means.

- A request between brokers carries `X-Tierlog-Forwarded: <sender>@<revision>`. Who gets it does it or refuses it, and
  never passes it on. It first waits, within limits, until its metadata is as new as the sender's, so that a topic made
  through one broker is known to the next.
- `ask` adds `;alone`: who gets that asks nobody else either, and speaks only of what it has itself. So a client's
  request makes one hop, what is asked for its sake one more, and there it ends.
- A request that never left (refused, no route) is BrokerUnreachable: nothing happened. A change whose answer is lost is
  OutcomeUnknown, and is not sent again by us.
- Connections belong to one registration of a broker. When that ends they are closed, and whoever waits on them is told
  at once, instead of after a time-out.

A node alone has no peers and opens no connection.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from gateway.http.problems import from_document
from gateway.node import Node
from hot_tier.cluster.endpoints import HTTP_PROTOCOLS, Endpoint
from hot_tier.cluster.image import ImageChange
from hot_tier.cluster.model import NO_NODE, BrokerInfo
from hot_tier.cluster.store import Revision
from hot_tier.errors import BrokerUnreachable, NoLeader, NotLeader, OutcomeUnknown, TierlogError
from hot_tier.ids import NodeId, PartitionId, TopicPartition

FORWARDED: Final = "X-Tierlog-Forwarded"
ALONE: Final = "alone"

CONNECT_S: Final = 3.0
ANSWER_S: Final = 60.0
"""Longer than a long poll and a delay for quotas together."""
CATCH_UP_S: Final = 2.0
CONNECTIONS: Final = 500
"""To one broker; more requests wait for one to be free."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class _Link(NamedTuple):
    broker: BrokerInfo
    session: aiohttp.ClientSession


class Peers:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._links: dict[NodeId, _Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.forwarded = 0
        """Requests passed on, for the metrics."""
        self._watching = False
        self._stands_still_at: Revision | None = None
        """Our revision when it was waited for another in vain."""

    async def close(self) -> None:
        if self._watching:
            self._watching = False
            self._node.image.unsubscribe(self._image_changed)
        for node_id in list(self._links):
            self._drop(node_id)
        await asyncio.gather(*self._closing, return_exceptions=True)

    # Where something is done

    def leader(self, topic: str, partition: int) -> BrokerInfo | None:
        """Who leads a partition; None when this broker does."""
        tp = TopicPartition(topic, PartitionId(partition))
        return self.registered(self._node.image.partition_state(tp).leader, str(tp))

    def registered(self, node_id: NodeId, where: str) -> BrokerInfo | None:
        """The broker with this number; None when it is this one. NoLeader when it is not there."""
        if node_id == self._node.node_id:
            return None
        broker = self._node.image.broker(node_id)
        if broker is None:
            said = "no broker leads this now" if node_id == NO_NODE else f"broker {node_id} leads this and is down"
            raise NoLeader(said, where=where, hint="try again")
        return broker

    # Requests that arrive from another broker

    async def admit(self, request: web.Request) -> tuple[bool, bool]:
        """Whether the request was passed on to us, and whether to answer it alone. If it was, our metadata is as new as
        the sender's, if it can be."""
        sent = request.headers.get(FORWARDED)
        if sent is None:
            return False, False
        place, _, manner = sent.partition(";")
        revision = place.partition("@")[2]
        image = self._node.image
        if revision.isdecimal() and len(revision) < 19 and image.revision != self._stands_still_at:
            try:
                async with asyncio.timeout(CATCH_UP_S):
                    await image.reached(Revision(int(revision)))
            except TimeoutError:
                # Decided by what we know; it is refused if that is too old. While metadata is away nobody waits again.
                self._stands_still_at = image.revision
        return True, manner == ALONE

    def refuse_hop(self, broker: BrokerInfo, where: str) -> None:
        """A request that was forwarded to us belongs elsewhere: metadata changed on its way."""
        raise NotLeader(f"broker {broker.id} has taken this over", where=where, hint="try again")

    # Requests to another broker

    async def send(
        self,
        broker: BrokerInfo,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Iterable[tuple[str, str]] = (),
        data: bytes | None = None,
        manner: str = "",
    ) -> aiohttp.ClientResponse:
        """The answer's head, whatever its status. `path` is percent-encoded. The caller releases the answer."""
        marked = CIMultiDict(headers)
        marked[FORWARDED] = f"{self._node.node_id}@{self._node.image.revision};{manner}"
        try:
            return await self._link(broker).session.request(
                method, URL(path, encoded=True), params=params, headers=marked, data=data, allow_redirects=False
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise BrokerUnreachable(f"broker {broker.id} cannot be reached: {error}", where=path) from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise lost(broker, method, path, error) from error

    async def ask(
        self,
        broker: BrokerInfo,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Iterable[tuple[str, str]] = (),
        data: bytes | None = None,
    ) -> Any:
        """The answer's document; what the other broker refuses is raised as it says it. `data` is a JSON document."""
        sent = [*headers, *([] if data is None else [("Content-Type", "application/json")])]
        response = await self.send(broker, method, path, params=params, headers=sent, data=data, manner=ALONE)
        async with response:
            try:
                body = await response.read()
                answer = orjson.loads(body) if body else None
            except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as error:
                raise lost(broker, method, path, error) from error
        if response.status >= 400:
            raise from_document(response.status, answer)
        return answer

    def _link(self, broker: BrokerInfo) -> _Link:
        link = self._links.get(broker.id)
        if link is not None and _same(link.broker, broker):
            return link
        if link is not None:
            self._drop(broker.id)
        if not self._watching:
            self._watching = True
            self._node.image.subscribe(self._image_changed)
        link = self._links[broker.id] = _Link(broker, _session(broker.for_peers(HTTP_PROTOCOLS)))
        return link

    def _image_changed(self, change: ImageChange) -> None:
        if not change.brokers:
            return
        for node_id, link in list(self._links.items()):
            current = self._node.image.broker(node_id)
            if current is None or not _same(link.broker, current):
                self._drop(node_id)

    def _drop(self, node_id: NodeId) -> None:
        task = asyncio.get_running_loop().create_task(self._links.pop(node_id).session.close(), name="close peer")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def lost(broker: BrokerInfo, method: str, path: str, error: BaseException) -> TierlogError:
    """What a request that was sent, and not answered whole, means."""
    why = str(error) or type(error).__name__
    if method in SAFE_METHODS:
        return BrokerUnreachable(f"broker {broker.id} did not answer: {why}", where=path)
    return OutcomeUnknown(f"broker {broker.id} was asked and its answer is lost: {why}", where=path)


def _session(where: Endpoint) -> aiohttp.ClientSession:
    """The one place where an HTTP client of another broker is made."""
    return aiohttp.ClientSession(
        f"{where.protocol}://{where}",
        connector=aiohttp.TCPConnector(limit=CONNECTIONS),
        timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=ANSWER_S),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )


def _same(one: BrokerInfo, other: BrokerInfo) -> bool:
    """Whether these are one registration of one process."""
    return (one.lease, one.endpoints) == (other.lease, other.endpoints)
