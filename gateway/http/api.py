"""What the handlers of one server share: the node, the settings, and the parts that live as long as the server."""

import asyncio
from typing import TYPE_CHECKING, ClassVar, Final

from aiohttp import web

from gateway.delivery.dead_letters import DeadLetters
from gateway.http.body import BodyReader
from gateway.http.budget import Budget
from gateway.http.metrics.exposition import Scrape
from gateway.http.metrics.requests import HttpMetrics
from gateway.http.peers.cluster_view import ClusterView
from gateway.http.peers.peers import Peers
from gateway.http.producer import Producer
from gateway.http.settings import HttpSettings
from gateway.http.sites import Sites
from gateway.kafka.server import KafkaServer
from gateway.node import Node

if TYPE_CHECKING:
    from gateway.http.server import HttpServer

MAX_THROTTLE_MS: Final = 30_000
"""Longer, and clients would take the connection for dead; what is left of the time meets the next request."""


class Api:
    KEY: ClassVar["web.AppKey[Api]"]

    def __init__(self, node: Node, settings: HttpSettings, kafka: KafkaServer | None = None) -> None:
        self.node = node
        self.settings = settings
        self.kafka = kafka
        self.sites = Sites(
            node.image, (settings.host, node.kafka.host, node.kafka.advertised_host), settings.allowed_hosts
        )
        self.bodies = BodyReader(settings.body_timeout_ms, settings.max_buffered_bytes)
        self.answers = Budget("unread answers", settings.max_unsent_bytes)
        self.producer = Producer(node, settings.produce_timeout_ms)
        self.peers = Peers(node)
        self.view = ClusterView(node, self.peers)
        self.dead_letters = DeadLetters(
            node,
            self.view,
            max_deliveries=settings.max_deliveries,
            redelivery_after_ms=settings.redelivery_after_ms,
        )
        self.metrics = HttpMetrics()
        self.scrape = Scrape()
        self.stopping = asyncio.Event()
        self.server: HttpServer | None = None
        """Set while one serves this app; for its figures."""

    async def wait_or_stop(self, *events: asyncio.Event, timeout_ms: float) -> None:
        """Wait for one of the events, for so long at most, and not while the node stops."""
        waits = [asyncio.ensure_future(each.wait()) for each in (*events, self.stopping)]
        try:
            await asyncio.wait(waits, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def throttle(self, throttle_ms: int) -> None:
        """Delay an answer: what slows down a client that waits for its answers before it asks again."""
        self.metrics.throttled_ms += throttle_ms
        await self.wait_or_stop(timeout_ms=min(throttle_ms, MAX_THROTTLE_MS))


Api.KEY = web.AppKey("api", Api)
