"""A listener: a socket with a name, who may connect to it, and who they are."""

import ssl
from asyncio import BaseTransport
from dataclasses import dataclass, field
from socket import socket
from typing import Literal, NamedTuple

from gateway.certificate_names import NameRules
from gateway.principal import Principal, anonymous
from gateway.tls import ClientCertificate
from hot_tier.cluster.endpoints import CLIENTS, EVERYONE, PEERS


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    protocol: str = field(
        default="",
        metadata={
            "doc": "What is spoken: Kafka's protocol (`plaintext`, `tls`; with a login `sasl_plaintext`, `sasl_tls`), "
            "or HTTP (`http`, `https`)."
        },
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
    certificate: str = field(
        default="", metadata={"doc": "File (PEM) with the certificate of this listener; empty: `tls.certificate`."}
    )
    key: str = field(default="", metadata={"doc": "File (PEM) with its private key; empty: `tls.key`."})
    ca: str = field(
        default="",
        metadata={"doc": "File (PEM) that the certificates of those who come in are checked against; empty: `tls.ca`."},
    )
    client_certificate: ClientCertificate = field(
        default="none",
        metadata={"doc": "Whether those who come in show a certificate: `none`, `wanted` or `required`."},
    )
    mechanisms: tuple[Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"], ...] = field(
        default=(),
        metadata={
            "doc": "How clients log in at a listener with SASL. Empty: the two SCRAM mechanisms, and with TLS also "
            "PLAIN, which sends the password itself, and OAUTHBEARER if `oauth.*` is set."
        },
    )
    login: Literal["none", "required"] = field(
        default="none",
        metadata={
            "doc": "Whether HTTP requests need a login: a password, a token, an API key, or, with `client_certificate` "
            "set to `wanted`, a certificate."
        },
    )


class Listener(NamedTuple):
    name: str
    socket: socket
    """Bound, but not listening yet."""
    takes: frozenset[str] = EVERYONE
    tls: ssl.SSLContext | None = None
    names: NameRules | None = None
    """Makes names from certificates; None if nobody is asked for one."""
    peers: frozenset[str] = frozenset()
    """Names of brokers; empty: everybody who may come in as a peer is one."""
    mechanisms: tuple[str, ...] = ()
    """How clients log in; none: they do not."""

    @property
    def takes_clients(self) -> bool:
        return CLIENTS in self.takes

    @property
    def takes_peers(self) -> bool:
        """Whether other brokers may connect: for replica fetches, and for HTTP requests that a broker forwards."""
        return PEERS in self.takes

    @property
    def certificate_is_login(self) -> bool:
        """Whether a certificate alone is a login where one is required. Where everybody has to show one, it is not: the
        login comes on top."""
        return self.tls is not None and self.tls.verify_mode is ssl.CERT_OPTIONAL

    def is_peer(self, principal: Principal) -> bool:
        """Returns whether this is another broker, as far as the listener can tell."""
        named = principal.kind == "certificate" and principal.name in self.peers
        return self.takes_peers and (not self.peers or named)

    def principal(self, transport: BaseTransport, address: str) -> Principal | None:
        """Returns who is at the other end. Returns None if its certificate has a subject that no rule fits."""
        session = transport.get_extra_info("ssl_object")
        certificate = None if session is None or self.names is None else session.getpeercert(binary_form=True)
        if certificate is None or self.names is None:
            return anonymous(self.name, address)
        name = self.names.name(certificate)
        return None if name is None else Principal(name, "certificate", self.name, address)
