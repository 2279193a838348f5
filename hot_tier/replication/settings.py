"""Settings of a broker that follows other brokers and is followed by them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    lag_time_max_ms: int = field(
        default=5_000,
        metadata={
            "doc": "A follower that has not caught up with its leader for so long is taken out of the in-sync set. One "
            "that asks for nothing at all is taken out sooner where the others are enough to commit.",
            "min": 1_000,
        },
    )
    fetchers: int = field(
        default=1,
        metadata={"doc": "Connections to each broker whose partitions are followed here.", "min": 1},
    )
    fetch_wait_max_ms: int = field(
        default=500,
        metadata={
            "doc": "How long a follower's fetch waits at the leader when there is nothing new. A follower that asks "
            "for nothing for three times as long, and a second at least, counts as silent."
        },
    )
    fetch_max_bytes: int = field(
        default=2 * 1024 * 1024,
        metadata={"doc": "Most bytes of one partition in an answer to a follower.", "min": 1},
    )
    fetch_response_max_bytes: int = field(
        default=10 * 1024 * 1024,
        metadata={"doc": "Most bytes of all partitions together in an answer to a follower.", "min": 1},
    )
