"""What a connection may ask for at its listener: brokers ask for little, and before a login there is nothing else."""

from typing import Final

from gateway.kafka.apis import Route
from gateway.kafka.errors import DecodeError
from gateway.kafka.login import Login
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.listener import Listener
from gateway.principal import Principal

LOGIN_APIS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
PEER_APIS: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS}
)
"""The APIs that brokers use among each other."""


def check_taken(route: Route, listener: Listener, principal: Principal, login: Login | None) -> None:
    """Raises DecodeError if the connection may not ask for this; it is closed then."""
    asks_as_peer = route.api_key in PEER_APIS and listener.is_peer(principal)
    if not listener.takes_clients and not asks_as_peer:
        raise DecodeError(f"the listener {listener.name!r} takes only brokers, not {route.api_key.name}")
    if login is not None and not login.holds() and route.api_key not in LOGIN_APIS:
        raise DecodeError(f"the listener {listener.name!r} takes no {route.api_key.name} before a login")
