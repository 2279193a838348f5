"""Settings of the Kafka listener."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    host: str = field(default="127.0.0.1", metadata={"doc": "Address to listen on."})
    port: int = field(default=9092, metadata={"doc": "Port to listen on; 0 picks a free one."})
    advertised_host: str = field(
        default="",
        metadata={
            "doc": "Host name that clients are told to connect to, and other brokers where HTTP listens on all "
            "addresses; empty: `host`, or this machine's name where that is all addresses."
        },
    )
    advertised_port: int = field(
        default=0, metadata={"doc": "Port that clients are told to connect to; 0: the port listened on."}
    )
    max_request_bytes: int = field(
        default=100 * 1024 * 1024, metadata={"doc": "Largest request frame; a larger one closes the connection."}
    )
    max_inflight_requests: int = field(
        default=64, metadata={"doc": "Unanswered requests per connection before reading from it pauses."}
    )
    max_login_ms: int = field(
        default=0,
        metadata={
            "doc": "How long a login at a listener with SASL holds. The client then logs in again, or is cut off. "
            "0: as long as the connection."
        },
    )
    max_connections: int = field(default=10_000, metadata={"doc": "Connections over all clients."})
    max_connections_per_ip: int = field(default=2_000, metadata={"doc": "Connections from one address."})
    connections_max_idle_ms: int = field(
        default=600_000, metadata={"doc": "A connection without any request for so long is closed."}
    )
    io_timeout_ms: int = field(
        default=30_000,
        metadata={
            "doc": "A request begun and not sent, or an answer not taken, within this time closes the connection."
        },
    )
    max_receiving_bytes: int = field(
        default=1024 * 1024 * 1024,
        metadata={"doc": "Memory for requests being received, over all connections; beyond it large ones are refused."},
    )
    max_unsent_bytes: int = field(
        default=512 * 1024 * 1024,
        metadata={"doc": "Memory for answers that clients do not take; beyond it fetches answer with little."},
    )
    send_buffer_bytes: int = field(
        default=512 * 1024,
        metadata={
            "doc": "The kernel's buffer for what a connection sends; 0 leaves its size to the system. Over long "
            "distances more is faster, near by less, as it stays in the CPU's cache."
        },
    )
    auto_create_topics: bool = field(
        default=True, metadata={"doc": "Create a topic when a producer asks for one that does not exist."}
    )
    fetch_max_bytes: int = field(
        default=55 * 1024 * 1024, metadata={"doc": "Most record bytes in one fetch response, whatever was asked."}
    )
    fetch_max_wait_ms: int = field(
        default=60_000, metadata={"doc": "Longest time that a fetch may wait for data, whatever was asked."}
    )
    max_fetch_sessions: int = field(default=1_000, metadata={"doc": "Incremental fetch sessions kept."})
    max_decompressed_bytes: int = field(
        default=128 * 1024 * 1024, metadata={"doc": "Largest size that a compressed batch may expand to."}
    )
    validation_depth: Literal["full", "header"] = field(
        default="full",
        metadata={"doc": "`full` walks every record of a produced batch, `header` checks CRC and header only."},
    )
    drain_timeout_ms: int = field(
        default=5_000, metadata={"doc": "At shutdown, how long unanswered requests may take to finish."}
    )
