"""Refuses requests that a web page of another site sent through somebody's browser.

A browser sends what any page asks for to any address that it can reach, also to a broker on `localhost`. Two rules
prevent that:

- `Host` must be a name of this broker. A page whose own name was made to point at this machine ("DNS rebinding") is not
  stopped by the browser, which sees page and broker as one site. But `Host` still contains the page's name. An IP
  address and a name without a dot are always allowed: nobody can own such a name.
- `Origin` and `Sec-Fetch-Site` are set by browsers only, and a page cannot change them. They must say that the page
  came from here, or from an origin that the operator trusts (`http.cors_origins`). A person who follows a link may
  pass: the page with the link does not see the answer.

A script of this broker's own page, the console, is told from programs by the same headers. With `http.console =
"read-only"` it can change nothing. A 401 for it does not offer Basic: the browser would ask for a password by itself,
keep it, and add it to every later request, whoever causes that. The console asks for the login, and adds it itself.

Programs send neither of these two headers; they only need a correct `Host`. Health and readiness contain no secrets and
are answered under any name.
"""

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from multidict import CIMultiDictProxy

from gateway.http.problems import CROSS_SITE, UNKNOWN_HOST, Problem
from hot_tier.cluster.image import ClusterImage

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
CONSOLE: Final = "/console"
FROM_CONSOLE: Final = "X-Tierlog-Console"
ANY_NAME: Final = "*"


def needs_no_login(path: str) -> bool:
    """Returns whether the path tells nothing of the cluster. The console's files are the same everywhere; the page
    itself asks for a login."""
    return path in OPEN_PATHS or path in ("/", CONSOLE) or path.startswith(CONSOLE + "/")


def by_script(headers: "CIMultiDictProxy[str]") -> bool:
    """Returns whether a script in a browser sent the request. `Origin` comes with whatever may change something, and a
    script cannot leave it out. Without TLS a browser says nothing at reads; then the console does."""
    return headers.get("Sec-Fetch-Mode", "navigate") != "navigate" or "Origin" in headers or FROM_CONSOLE in headers


class Sites:
    def __init__(
        self, image: ClusterImage, names: Iterable[str], allowed: Iterable[str], origins: frozenset[str] = frozenset()
    ) -> None:
        """`names` are the names that this broker listens on and is known by; `allowed` are those its operator added.
        Pages of `origins` may send requests."""
        self._origins = origins
        self._image = image
        self._allowed = frozenset(map(_plain, allowed))
        self._names = self._allowed | {_plain(name) for name in (*names, socket.gethostname()) if name}

    def check(self, method: str, path: str, headers: "CIMultiDictProxy[str]", *, secure: bool) -> None:
        """`secure`: the request came by TLS, so the page did too. Else anybody on its way could have made the page, and
        the browser may show this broker a certificate."""
        if path in OPEN_PATHS:
            return
        host = headers.get("Host", "")
        if not self._is_ours(host):
            raise Problem(UNKNOWN_HOST, f"{host!r} is not a name of this broker")
        origin = headers.get("Origin")
        if origin in self._origins:
            return
        if origin is not None and not self._is_from_here(origin, host, secure):
            raise Problem(CROSS_SITE, f"a web page of {origin!r} sent this request")
        site = headers.get("Sec-Fetch-Site", "none")
        if origin is None and site not in ("none", "same-origin") and not _follows_link(method, headers):
            raise Problem(CROSS_SITE, f"a web page of another site sent this request (Sec-Fetch-Site: {site})")

    def _is_ours(self, host: str) -> bool:
        if not host:  # A browser always sends `Host`.
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

    def _is_from_here(self, origin: str, host: str, secure: bool) -> bool:
        scheme, separator, authority = origin.partition("://")
        if not separator or scheme not in (("https",) if secure else ("http", "https")):
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
    """Returns the host name without the port."""
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
