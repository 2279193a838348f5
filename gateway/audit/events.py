"""One event of the audit, and its JSON in the form of OCSF 1.3.0: docs/formats/audit.md.

An event has names and codes only, cut to `NAME_LIMIT` characters, and at most `MOST_RESOURCES` of them: how many more
there were is a number. So an event has at most some kilobytes, whatever a request asks for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import orjson

from gateway.audit.kinds import OTHER
from gateway.principal import Principal

OCSF_VERSION: Final = "1.3.0"
AUTHENTICATION: Final = 3002
API_ACTIVITY: Final = 6003
LIFECYCLE: Final = 6002
LOGON: Final = 1
START: Final = 3
STOP: Final = 4

NAME_LIMIT: Final = 256
MOST_RESOURCES: Final = 20
EVENT_BYTES: Final = 1_000
"""About what the JSON of an event takes besides its resources and its path."""
RESOURCE_BYTES: Final = 60

INFORMATIONAL: Final = 1
MEDIUM: Final = 3

Outcome = Literal["success", "failed", "refused"]


class Resource(NamedTuple):
    type: str
    name: str
    error: str = ""
    """The error of this resource, if each resource has its own."""


class Result(NamedTuple):
    outcome: Outcome
    code: str = ""
    """The name of Kafka's error or of the HTTP problem."""
    detail: str = ""


SUCCESS: Final = Result("success")


class HttpExchange(NamedTuple):
    method: str
    path: str
    user_agent: str
    status: int


class Sender(NamedTuple):
    principal: Principal
    port: int
    client_id: str


@dataclass(frozen=True, slots=True)
class Event:
    time_ms: int
    class_uid: int
    activity: int
    operation: str = ""
    service: str = ""
    version: str = ""
    sender: Sender | None = None
    result: Result = SUCCESS
    resources: Sequence[Resource] = ()
    more: int = 0
    """The number of resources that are left out."""
    count: int = 1
    since_ms: int = 0
    """The time of the first of `count` acts."""
    http: HttpExchange | None = None

    @property
    def size(self) -> int:
        """Returns about how many bytes it takes, in the queue and as JSON."""
        named = sum(RESOURCE_BYTES + len(each.name) + len(each.error) for each in self.resources)
        return EVENT_BYTES + named + (0 if self.http is None else len(self.http.path) + len(self.http.user_agent))


class Origin(NamedTuple):
    """The broker that writes events, and this run of it."""

    node_id: int
    version: str
    run: str


def cut(name: str) -> str:
    return name if len(name) <= NAME_LIMIT else name[: NAME_LIMIT - 1] + "…"


def encode(events: Sequence[Event], first: int, origin: Origin) -> list[bytes]:
    """Returns the JSON of each event. `first` is the number of the first one in this run of the broker."""
    return [
        orjson.dumps(_document(event, number, origin), option=orjson.OPT_NON_STR_KEYS)
        for number, event in enumerate(events, first)
    ]


def _document(event: Event, number: int, origin: Origin) -> dict[str, Any]:
    result = event.result
    refused = result.outcome == "refused"
    document: dict[str, Any] = {
        "time": event.time_ms,
        "class_uid": event.class_uid,
        "category_uid": event.class_uid // 1000,
        "activity_id": event.activity,
        "type_uid": event.class_uid * 100 + event.activity,
        "severity_id": MEDIUM if refused else INFORMATIONAL,
        "status_id": 1 if result.outcome == "success" else 2,
        "status": "Success" if result.outcome == "success" else "Failure",
        "metadata": {
            "version": OCSF_VERSION,
            "product": _product(origin),
            "uid": f"{origin.node_id}-{origin.run}-{number}",
        },
    }
    if result.code:
        document["status_code"] = result.code
    if result.detail:
        document["status_detail"] = _text(result.detail)
    if event.count > 1 or event.since_ms:
        document |= {"count": event.count, "start_time": event.since_ms, "end_time": event.time_ms}
    unmapped: dict[str, Any] = {"outcome": result.outcome, "node_id": origin.node_id}
    if event.sender is not None:
        _add_sender(document, unmapped, event, event.sender)
    if event.class_uid == LIFECYCLE:
        document["app"] = _product(origin)
    if event.class_uid == API_ACTIVITY:
        document["api"] = {
            "operation": event.operation,
            "version": event.version,
            "service": {"name": event.service},
        }
    if event.resources:
        document["resources"] = [_resource(each) for each in event.resources]
    if event.more:
        unmapped["more_resources"] = event.more
    if event.http is not None:
        document["http_request"] = {
            "http_method": _text(event.http.method),
            "url": {"path": _text(event.http.path)},
            "user_agent": _text(event.http.user_agent),
        }
        document["http_response"] = {"code": event.http.status}
    document["unmapped"] = unmapped
    return document


def _add_sender(document: dict[str, Any], unmapped: dict[str, Any], event: Event, sender: Sender) -> None:
    principal = sender.principal
    known = principal.kind != "anonymous"
    user = {"name": _text(principal.name) or "unknown", "type_id": int(known), "type": "User" if known else "Unknown"}
    document["src_endpoint"] = {"ip": principal.address, "port": sender.port}
    document["actor"] = {"user": user}
    unmapped |= {"listener": principal.listener, "login": principal.kind, "client_id": _text(sender.client_id)}
    if event.class_uid == AUTHENTICATION:
        document["user"] = user
        document["service"] = {"name": event.service}
        document["auth_protocol_id"] = OTHER
        document["auth_protocol"] = event.operation


def _product(origin: Origin) -> dict[str, str]:
    return {"name": "tierlog", "vendor_name": "tierlog", "version": origin.version}


def _resource(resource: Resource) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": resource.type, "name": _text(resource.name)}
    if resource.error:
        shown["data"] = {"error": resource.error}
    return shown


def _text(said: str) -> str:
    """Returns text that can be written as JSON: a request may hold what is not text."""
    return cut(said.encode(errors="replace").decode())
