"""Other brokers, reached over HTTP: connections, protection against loops, and what a failure means.

- A request between brokers carries `X-Tierlog-Forwarded: <sender>@<revision>`. Its receiver handles or refuses it, and
  never forwards it. First the receiver waits, within limits, until its metadata is as new as the sender's, so that a
  topic made through one broker is known to the next.
- `ask` adds `;alone`: the receiver asks no other broker and answers only with what it has itself. So a client's request
  makes one hop, a question that it causes makes one more, and there it ends.
- If a request never left this broker (refused, no route), the error is BrokerUnreachable: nothing happened. If the
  answer to a change is lost, the error is OutcomeUnknown, and this broker does not send the change again.
- Connections belong to one registration of a broker. When it ends, they are closed, and requests that wait on them fail
  at once instead of after a time-out.

A single node has no peers and opens no connection.
"""

import asyncio
from collections.abc import Iterable, Mapping
from ssl import SSLContext
from typing import Any, Final, NamedTuple

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from gateway.http.problems import from_document
from gateway.node import Node
from hot_tier.cluster.endpoints import HTTP_PROTOCOLS, SECURE, Endpoint
from hot_tier.cluster.image import ImageChange
from hot_tier.cluster.model import NO_NODE, BrokerInfo
from hot_tier.cluster.store import Revision
from hot_tier.errors import BrokerUnreachable, NoLeader, NotLeader, OutcomeUnknown, TierlogError
from hot_tier.ids import NodeId, PartitionId, TopicPartition

FORWARDED: Final = "X-Tierlog-Forwarded"
ALONE: Final = "alone"

CONNECT_S: Final = 3.0
ANSWER_S: Final = 60.0
"""Longer than a long poll and a quota delay together."""
CATCH_UP_S: Final = 2.0
CONNECTIONS: Final = 500
"""Per broker. Further requests wait until a connection is free."""
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
        """Forwarded requests, for the metrics."""
        self._watching = False
        self._stands_still_at: Revision | None = None
        """Our metadata revision when we last waited in vain for a newer one."""

    async def close(self) -> None:
        if self._watching:
            self._watching = False
            self._node.image.unsubscribe(self._image_changed)
        for node_id in list(self._links):
            self._drop(node_id)
        await asyncio.gather(*self._closing, return_exceptions=True)

    # Finding the right broker

    def leader(self, topic: str, partition: int) -> BrokerInfo | None:
        """Returns the broker that leads a partition; None if it is this one."""
        tp = TopicPartition(topic, PartitionId(partition))
        return self.registered(self._node.image.partition_state(tp).leader, str(tp))

    def registered(self, node_id: NodeId, where: str) -> BrokerInfo | None:
        """Returns the broker with this id; None if it is this one. Raises NoLeader if it is not registered."""
        if node_id == self._node.node_id:
            return None
        broker = self._node.image.broker(node_id)
        if broker is None:
            said = "no broker leads this now" if node_id == NO_NODE else f"broker {node_id} leads this but is down"
            raise NoLeader(said, where=where, hint="try again")
        return broker

    # Requests that arrive from another broker

    async def admit(self, request: web.Request) -> tuple[bool, bool]:
        """Returns whether another broker forwarded the request, and whether to answer it alone. If it was forwarded,
        this first waits until our metadata is as new as the sender's, within limits."""
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
                # We decide with the metadata that we have; if it is too old, the request is refused. While the metadata
                # store is away, later requests do not wait again.
                self._stands_still_at = image.revision
        return True, manner == ALONE

    def refuse_hop(self, broker: BrokerInfo, where: str) -> None:
        """Refuses a forwarded request that belongs to another broker: the metadata changed on its way."""
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
        """Returns the answer's head, whatever its status. `path` is percent-encoded. The caller releases the answer."""
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
        """Returns the answer's document. Raises the other broker's refusal in its words. `data` is a JSON document."""
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
        tls = self._node.tls
        where = broker.for_peers(HTTP_PROTOCOLS if tls is not None else HTTP_PROTOCOLS - SECURE)
        link = self._links[broker.id] = _Link(broker, _session(where, tls))
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
    """Returns the error for a request that was sent but not answered completely."""
    why = str(error) or type(error).__name__
    if method in SAFE_METHODS:
        return BrokerUnreachable(f"broker {broker.id} did not answer: {why}", where=path)
    return OutcomeUnknown(f"broker {broker.id} got the request, but its answer is lost: {why}", where=path)


def _session(where: Endpoint, tls: SSLContext | None) -> aiohttp.ClientSession:
    """Returns an HTTP client for another broker. Only this function makes one."""
    return aiohttp.ClientSession(
        f"{where.protocol}://{where}",
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls or True),
        timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=ANSWER_S),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )


def _same(one: BrokerInfo, other: BrokerInfo) -> bool:
    """Returns whether both are one registration of one process."""
    return (one.lease, one.endpoints) == (other.lease, other.endpoints)
