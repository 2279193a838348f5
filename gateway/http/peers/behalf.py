"""On whose behalf a request is forwarded: the header in which a broker tells it to the next one.

The header counts only where `tls.peers` names the brokers, on a request that one of them has forwarded: nobody else can
say who somebody is. So quotas, permissions and the like go by the sender, whichever broker does the work.
"""

from typing import Any, Final, cast, get_args, get_type_hints
from urllib.parse import parse_qs, urlencode

from gateway.http.problems import BAD_REQUEST, Problem
from gateway.principal import Principal

SENDER: Final = "X-Tierlog-Sender"
KINDS: Final = frozenset(get_args(get_type_hints(Principal)["kind"]))


def write_sender(principal: Principal) -> str:
    said = {each: getattr(principal, each) for each in ("name", "kind", "listener", "address")}
    if principal.scope is not None:
        said["scope"] = " ".join(sorted(principal.scope))
    return urlencode(said)


def read_sender(text: str) -> Principal:
    principal = None
    try:
        said = {name: values[0] for name, values in parse_qs(text, True, True, errors="strict").items()}
        scope = frozenset(said["scope"].split()) if "scope" in said else None
        principal = Principal(said["name"], cast(Any, said["kind"]), said["listener"], said["address"], scope)
    except (KeyError, ValueError):
        pass
    if principal is None or principal.kind not in KINDS:
        raise Problem(BAD_REQUEST, f"{SENDER} does not name a sender")
    return principal
