"""A listener: a socket with a name, and who may come in by it."""

from dataclasses import dataclass, field
from socket import socket
from typing import Literal, NamedTuple

from hot_tier.cluster.endpoints import CLIENTS, EVERYONE, PEERS


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    protocol: str = field(
        default="", metadata={"doc": "What is spoken: `plaintext` is Kafka's protocol, `http` is HTTP."}
    )
    bind: str = field(
        default="", metadata={"doc": "`HOST:PORT` to listen on; port 0 picks a free one. Not for `kafka` and `http`."}
    )
    advertised: str = field(
        default="",
        metadata={
            "doc": "`HOST:PORT` that those who come in by it are told to connect to; empty: where it listens, under "
            "`kafka.advertised_host` if that is all addresses. Not for `kafka` and `http`."
        },
    )
    takes: tuple[Literal["clients", "peers"], ...] = field(
        default=("clients", "peers"),
        metadata={"doc": "Who may come in: clients, other brokers of the cluster (peers), or both."},
    )


class Listener(NamedTuple):
    name: str
    socket: socket
    """Bound, not listening yet."""
    takes: frozenset[str] = EVERYONE

    @property
    def takes_clients(self) -> bool:
        return CLIENTS in self.takes

    @property
    def takes_peers(self) -> bool:
        """Other brokers: replica fetches, and HTTP requests that a broker passes on."""
        return PEERS in self.takes
