"""Where a broker is reached: its listeners by name, as its registration tells clients and other brokers.

- A client is told the endpoint of the listener that it came in on, at every broker. A broker without a listener of that
  name is not there for this client.
- Brokers call each other at the first listener that takes `peers` and whose protocol they speak.
- A registration also says where peers reach it in the form of version 0.1, which knew one address for each protocol
  and used it for everyone. What version 0.1 wrote reads as the two listeners that simple settings make.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

KAFKA: Final = "kafka"
HTTP: Final = "http"
"""The two listeners that simple settings make."""

KAFKA_PROTOCOLS: Final = frozenset({"plaintext", "tls", "sasl_plaintext", "sasl_tls"})
HTTP_PROTOCOLS: Final = frozenset({"http", "https"})
SECURE: Final = frozenset({"tls", "sasl_tls", "https"})
"""Those of the protocols above that are spoken over TLS."""
SASL: Final = frozenset({"sasl_plaintext", "sasl_tls"})
"""Those of the protocols above at which clients log in."""

CLIENTS: Final = "clients"
PEERS: Final = "peers"
EVERYONE: Final = frozenset({CLIENTS, PEERS})


class Endpoint(NamedTuple):
    host: str
    port: int
    protocol: str
    takes: frozenset[str] = EVERYONE
    """Who may come in: `clients`, `peers`."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Endpoints = Mapping[str, Endpoint]


def simple_endpoints(host: str, port: int, http_host: str = "", http_port: int = 0) -> Endpoints:
    """Returns one listener for Kafka and one for HTTP, both for everyone."""
    return {KAFKA: Endpoint(host, port, "plaintext"), HTTP: Endpoint(http_host, http_port, "http")}


def first_for(endpoints: Endpoints, who: str, protocols: Collection[str]) -> Endpoint | None:
    return next((each for each in endpoints.values() if who in each.takes and each.protocol in protocols), None)


def endpoints_as_json(endpoints: Endpoints) -> dict[str, Any]:
    """Returns the fields of a registration, in the present form and in that of version 0.1."""
    nowhere = Endpoint("", 0, "")
    kafka = first_for(endpoints, PEERS, KAFKA_PROTOCOLS - SECURE - SASL) or nowhere
    http = first_for(endpoints, PEERS, HTTP_PROTOCOLS - SECURE) or nowhere
    return {
        "host": kafka.host,
        "port": kafka.port,
        "http_host": http.host,
        "http_port": http.port,
        "endpoints": {
            name: {"host": each.host, "port": each.port, "protocol": each.protocol, "takes": sorted(each.takes)}
            for name, each in endpoints.items()
        },
    }


def endpoints_from_json(value: Mapping[str, Any]) -> Endpoints:
    """Returns the endpoints from either form. Raises KeyError, TypeError or AttributeError if it is neither."""
    if "endpoints" not in value:
        return simple_endpoints(value["host"], value["port"], value["http_host"], value["http_port"])
    return {
        name: Endpoint(each["host"], each["port"], each["protocol"], frozenset(each["takes"]))
        for name, each in value["endpoints"].items()
    }
