"""Settings of the HTTP listener, of reads and writes through it, and of dead letters."""

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from hot_tier.errors import SettingsError

ConsoleMode = Literal["full", "read-only", "off"]
ORIGIN: Final = re.compile(r"https?://([a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:]+\])(:[1-9][0-9]{0,4})?")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str = field(default="127.0.0.1", metadata={"doc": "Address to listen on."})
    port: int = field(default=8080, metadata={"doc": "Port to listen on; 0 picks a free one."})
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata={
            "doc": "Host names, beside the broker's own, under which requests may arrive (a load balancer's), and "
            "whose web pages may send requests; `*` for any name. IP addresses, names without a dot and names of the "
            "cluster's brokers are always right."
        },
    )
    cors_origins: tuple[str, ...] = field(
        default=(),
        metadata={
            "doc": "Origins, such as `https://app.example`, whose web pages may send requests and read the answers "
            "(CORS). Empty: none."
        },
    )
    console: ConsoleMode = field(
        default="full",
        metadata={
            "doc": "The console at `/console`. With `read-only`, requests of web pages that this broker served cannot "
            "change anything, whatever the user may do otherwise; with `off` there is no console."
        },
    )
    max_connections: int = field(
        default=2_000,
        metadata={
            "doc": "Connections over all clients; one more is answered 503 and closed. `/healthz`, `/readyz` and "
            "`/metrics` are answered nevertheless."
        },
    )
    max_header_bytes: int = field(
        default=16 * 1024, metadata={"doc": "Longest request line, and longest single header, of a request."}
    )
    max_message_bytes: int = field(
        default=1024 * 1024,
        metadata={"doc": "Longest body of a single message; the topic's `max.message.bytes` applies as well."},
    )
    max_batch_bytes: int = field(
        default=16 * 1024 * 1024, metadata={"doc": "Longest body of a request that carries many messages."}
    )
    max_document_bytes: int = field(default=256 * 1024, metadata={"doc": "Longest body of any other request."})
    max_buffered_bytes: int = field(
        default=256 * 1024 * 1024,
        metadata={"doc": "Request bodies held in memory over all connections; beyond it requests are answered 503."},
    )
    max_unsent_bytes: int = field(
        default=256 * 1024 * 1024,
        metadata={
            "doc": "Answers held in memory until their clients read them, over all connections; beyond it reads answer "
            "with less or 503. One address may hold half of this, and half of `max_buffered_bytes`; beyond it: 429."
        },
    )
    max_connections_per_ip: int = field(
        default=1_000, metadata={"doc": "Connections from one address; one more is answered 429 and closed."}
    )
    header_timeout_ms: int = field(
        default=10_000,
        metadata={
            "doc": "A new connection that is silent, or a request whose headers are not whole, for so long is closed."
        },
    )
    body_timeout_ms: int = field(
        default=30_000, metadata={"doc": "A request body that is not whole after so long is answered 408 and closed."}
    )
    send_timeout_ms: int = field(
        default=30_000, metadata={"doc": "A client that reads nothing of its response for so long is closed."}
    )
    keepalive_timeout_ms: int = field(
        default=75_000, metadata={"doc": "A connection without a request for so long is closed."}
    )
    drain_timeout_ms: int = field(
        default=5_000, metadata={"doc": "At shutdown, how long requests in progress may take to finish."}
    )
    read_limit: int = field(default=100, metadata={"doc": "Messages in one answer when `limit` is not given."})
    max_read_limit: int = field(default=10_000, metadata={"doc": "Most messages that `limit` may ask for as JSON."})
    read_max_bytes: int = field(
        default=16 * 1024 * 1024,
        metadata={
            "doc": "Most bytes of record batches, and of their records, behind one JSON answer, whatever was asked."
        },
    )
    max_wait_ms: int = field(
        default=8_000,
        metadata={
            "doc": "Longest time that `wait_ms` may ask for; below the ten seconds after which many clients and "
            "proxies take an unanswered request for lost."
        },
    )
    produce_timeout_ms: int = field(
        default=30_000,
        metadata={
            "doc": "A message that its in-sync replicas have not stored after so long is answered 503: it may yet be."
        },
    )
    max_deliveries: int = field(
        default=5,
        metadata={
            "doc": "Failed deliveries of one record to one group after which it is dead-lettered; 0: never by itself."
        },
    )
    redelivery_after_ms: int = field(
        default=30_000,
        metadata={
            "doc": "A group that reads the same uncommitted record again after at least so long has failed to "
            "handle it; 0: only failures that a consumer reports are counted."
        },
    )

    def __post_init__(self) -> None:
        for origin in self.cors_origins:
            if not ORIGIN.fullmatch(origin):
                raise SettingsError(
                    f"http.cors_origins cannot have {origin!r}",
                    hint="each is https://HOST or https://HOST:PORT as browsers write it: small letters, no path, no *",
                )
        for name in ("port", "max_deliveries", "redelivery_after_ms"):
            if getattr(self, name) < 0:
                raise SettingsError(f"http.{name} is {getattr(self, name)}", hint="it is at least 0")
        for name in (
            "max_connections",
            "max_header_bytes",
            "max_message_bytes",
            "max_batch_bytes",
            "max_document_bytes",
            "max_buffered_bytes",
            "max_unsent_bytes",
            "max_connections_per_ip",
            "header_timeout_ms",
            "body_timeout_ms",
            "send_timeout_ms",
            "keepalive_timeout_ms",
            "drain_timeout_ms",
            "read_limit",
            "max_read_limit",
            "read_max_bytes",
            "max_wait_ms",
            "produce_timeout_ms",
        ):
            if getattr(self, name) < 1:
                raise SettingsError(f"http.{name} is {getattr(self, name)}", hint="it is at least 1")
        if self.read_limit > self.max_read_limit:
            raise SettingsError(
                f"http.read_limit is {self.read_limit}", hint=f"it is at most max_read_limit ({self.max_read_limit})"
            )
