"""What the handlers of one server share: the node, the settings, and the parts that live as long as the server."""

import asyncio
from typing import TYPE_CHECKING, ClassVar, Final

from aiohttp import web

from gateway.delivery.dead_letters import DeadLetters
from gateway.http.body import BodyReader
from gateway.http.budget import Budget
from gateway.http.cors import Cors
from gateway.http.figures.merged import ClusterTotals
from gateway.http.figures.sampler import Sampler
from gateway.http.login import HttpLogin
from gateway.http.metrics.exposition import Scrape
from gateway.http.metrics.requests import HttpMetrics
from gateway.http.peers.cluster_view import ClusterView
from gateway.http.peers.peers import Peers
from gateway.http.producer import Producer
from gateway.http.settings import HttpSettings
from gateway.http.sites import Sites
from gateway.http.transactions.sessions import Sessions
from gateway.kafka.server import KafkaServer
from gateway.node import Node
from gateway.sql.queries import Queries

if TYPE_CHECKING:
    from gateway.http.server import HttpServer

MAX_THROTTLE_MS: Final = 30_000
"""With a longer delay, clients would believe that the connection is dead. The rest delays the next request."""


class Api:
    KEY: ClassVar["web.AppKey[Api]"]

    def __init__(
        self,
        node: Node,
        settings: HttpSettings,
        kafka: KafkaServer | None = None,
        queries: Queries | None = None,
    ) -> None:
        self.node = node
        self.queries = queries
        self.settings = settings
        self.kafka = kafka
        self.cors = Cors(settings.cors_origins)
        names = (settings.host, node.kafka.host, node.kafka.advertised_host)
        self.sites = Sites(node.image, names, settings.allowed_hosts, self.cors.origins)
        self.bodies = BodyReader(settings.body_timeout_ms, settings.max_buffered_bytes)
        self.answers = Budget("unread answers", settings.max_unsent_bytes)
        self.producer = Producer(node, settings.produce_timeout_ms)
        self.login = HttpLogin(node)
        self.peers = Peers(node)
        self.view = ClusterView(node, self.peers)
        self.transactions = Sessions(node, self.peers, settings.produce_timeout_ms)
        self.dead_letters = DeadLetters(
            node,
            self.view,
            max_deliveries=settings.max_deliveries,
            redelivery_after_ms=settings.redelivery_after_ms,
        )
        self.sampler = Sampler(node, self.peers)
        self.totals = ClusterTotals(self.sampler, self.view)
        self.metrics = HttpMetrics()
        self.scrape = Scrape()
        self.stopping = asyncio.Event()
        self.server: HttpServer | None = None
        """Set while a server serves this app; its figures are shown."""

    async def wait_or_stop(self, *events: asyncio.Event, timeout_ms: float) -> None:
        """Waits until one of the events is set, the time is over, or the node stops."""
        waits = [asyncio.ensure_future(each.wait()) for each in (*events, self.stopping)]
        try:
            await asyncio.wait(waits, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def throttle(self, throttle_ms: int) -> None:
        """Delays an answer. This slows down a client that waits for its answer before it asks again."""
        self.metrics.throttled_ms += throttle_ms
        await self.wait_or_stop(timeout_ms=min(throttle_ms, MAX_THROTTLE_MS))


Api.KEY = web.AppKey("api", Api)
