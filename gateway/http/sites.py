"""Which requests a web page may have sent through somebody's browser, and which of them are refused.

A browser sends what any page asks for to any address it can reach, a broker on `localhost` too. Two rules prevent it:

- `Host` must be a name of ours. A page whose own name was made to point at this machine ("DNS rebinding") is not
  held back by the browser, as it takes page and broker for one site; but `Host` still has the page's name. An IP
  address and a name without a dot cannot be such a name: nobody can own one.
- `Origin` and `Sec-Fetch-Site` are set by browsers alone, and a page cannot change them. They must say that the page
  came from here. A person who follows a link is let through: the page that has the link does not see the answer.

Programs send neither of the two headers and need only a right name. Health and readiness tell nothing worth hiding and
answer under any name.
"""

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from multidict import CIMultiDictProxy

from gateway.http.problems import CROSS_SITE, UNKNOWN_HOST, Problem
from hot_tier.cluster.image import ClusterImage

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
ANY_NAME: Final = "*"


class Sites:
    def __init__(self, image: ClusterImage, names: Iterable[str], allowed: Iterable[str]) -> None:
        """`names`: what this broker listens on and is known by; `allowed`: what its operator added."""
        self._image = image
        self._allowed = frozenset(map(_plain, allowed))
        self._names = self._allowed | {_plain(name) for name in (*names, socket.gethostname()) if name}

    def check(self, method: str, path: str, headers: "CIMultiDictProxy[str]") -> None:
        if path in OPEN_PATHS:
            return
        host = headers.get("Host", "")
        if not self._is_ours(host):
            raise Problem(UNKNOWN_HOST, f"this broker does not go by the name {host!r}")
        origin = headers.get("Origin")
        if origin is not None and not self._is_from_here(origin, host):
            raise Problem(CROSS_SITE, f"a page of {origin!r} sent this request")
        site = headers.get("Sec-Fetch-Site", "none")
        if origin is None and site not in ("none", "same-origin") and not _follows_link(method, headers):
            raise Problem(CROSS_SITE, f"a page of another site sent this request (Sec-Fetch-Site: {site})")

    def _is_ours(self, host: str) -> bool:
        if not host:  # A browser always sends it.
            return True
        name = _name(host)
        return (
            "." not in name
            or name.endswith(".localhost")
            or name in self._names
            or ANY_NAME in self._allowed
            or _is_address(name)
            or any(
                name == _plain(endpoint.host)
                for broker in self._image.brokers()
                for endpoint in broker.endpoints.values()
            )
        )

    def _is_from_here(self, origin: str, host: str) -> bool:
        scheme, separator, authority = origin.partition("://")
        if not separator or scheme not in ("http", "https"):
            return False
        default = ":80" if scheme == "http" else ":443"
        return (
            authority.lower().removesuffix(default) == host.lower().removesuffix(default)
            or _name(authority) in self._allowed
        )


def _follows_link(method: str, headers: "CIMultiDictProxy[str]") -> bool:
    return (
        method in ("GET", "HEAD")
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and headers.get("Sec-Fetch-Dest") == "document"
    )


def _name(authority: str) -> str:
    """Without the port."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return _plain(authority.partition(":")[0])


def _plain(name: str) -> str:
    return name.lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
