"""Every refusal as `application/problem+json` (RFC 9457), and the status of each cause.

The status follows one rule, so that a client can act on the status alone:

    400  the request does not match /openapi.json
    404  it names something that does not exist
    409  it is well formed, but the present state does not allow it: an offset out of range, a topic that exists
    403  no access rule allows it; or a web page of another site sent it, or it was sent to a name that is not ours
    413, 415, 406, 408, 405  as HTTP defines them
    429  try again with less at once: this address has used up its share
    503  try again: nothing is wrong with the request
    507  the disk is full
    500  a mistake of ours

Each problem has a `hint`: what to do next. An error brings its own, or `kinds.KINDS` has one for its class. The `type`
is a name for comparisons, not an address to fetch.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.http.kinds import INTERNAL, Kind, kind_of
from hot_tier import errors

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:tierlog:problem:"


class Problem(Exception):
    """A refusal that the HTTP layer decides. Deeper layers raise a `TierlogError` instead."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        hint: str = "",
        extra: Mapping[str, Any] = MappingProxyType({}),
        headers: Mapping[str, str] = MappingProxyType({}),
        close: bool = False,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.hint = hint or kind.hint
        self.extra = extra
        self.headers = headers
        self.close = close


BAD_REQUEST: Final = Kind(400, "bad-request", "The request is malformed", "Compare the request with /openapi.json.")
BAD_PARAMETER: Final = Kind(
    400, "bad-parameter", "A parameter is missing or wrong", "Correct the parameter that `detail` names."
)
BAD_JSON: Final = Kind(400, "bad-json", "The body is not JSON", "Send one JSON document, encoded as UTF-8.")
BAD_DOCUMENT: Final = Kind(
    400, "bad-document", "The body does not have the expected shape", "Correct the members that `errors` names."
)
UNKNOWN_HOST: Final = Kind(
    403,
    "unknown-host",
    "The request was sent to a name that is not this broker's",
    "Use the broker's address, or add the name to the setting http.allowed_hosts.",
)
CROSS_SITE: Final = Kind(
    403,
    "cross-site",
    "A web page of another site may not do this",
    "Send the request from a program, or add the page's host name to the setting http.allowed_hosts.",
)
WRONG_LISTENER: Final = Kind(
    403,
    "wrong-listener",
    "This listener does not take such requests",
    "Use another listener of the broker; the setting listener.<name>.takes says what each of them takes.",
)
NOT_AUTHORIZED: Final = Kind(
    403,
    "not-authorized",
    "You may not do this",
    "Ask an administrator for an access rule: `tierlog acl add`, or Kafka's `kafka-acls`.",
)
AUTHORIZATION_OFF: Final = Kind(
    409,
    "authorization-off",
    "Access rules do not hold on this node",
    "Everybody may do everything. The setting authorization.enabled changes that.",
)
LOGIN_NEEDED: Final = Kind(
    401,
    "login-needed",
    "This listener asks for a login",
    "Send `Authorization: Basic` with a user and a password, or `Authorization: Bearer` with a token or an API key.",
)
LOGIN_FAILED: Final = Kind(
    401, "login-failed", "The login failed", "Check the user's name and the password, the token or the API key."
)
BEYOND_SCOPE: Final = Kind(
    403, "beyond-scope", "The API key is not for this", "Use a key with a wider scope, or another login."
)
READ_ONLY: Final = Kind(
    403, "read-only", "The console changes nothing here", "Use the command line, or another broker's console."
)
NOT_FOUND: Final = Kind(
    404, "not-found", "There is nothing at this address", "The addresses are listed in /openapi.json."
)
WRONG_METHOD: Final = Kind(405, "wrong-method", "The method does not apply here", "Use one of the methods in `Allow`.")
NOT_ACCEPTABLE: Final = Kind(
    406, "not-acceptable", "No representation matches Accept", "Accept one of the media types that `detail` lists."
)
BODY_TIMEOUT: Final = Kind(
    408,
    "body-timeout",
    "The body did not arrive in time",
    "Send the whole body at once, or split it into smaller requests.",
)
BODY_TOO_LARGE: Final = Kind(413, "body-too-large", "The body is too large", "Send less in one request.")
WRONG_MEDIA_TYPE: Final = Kind(
    415, "wrong-media-type", "The body has the wrong media type", "Send `Content-Type: application/json`."
)
BAD_EXPECTATION: Final = Kind(
    417, "bad-expectation", "The expectation cannot be met", "Leave `Expect` out, or send `Expect: 100-continue`."
)
OVERLOADED: Final = Kind(503, "overloaded", "Too much at once", "Try again after the time in `Retry-After`.")
TOO_MUCH: Final = Kind(
    429,
    "too-much-at-once",
    "One address asks for too much at once",
    "Read the answers that wait, close connections that are not needed, and try again after the time in `Retry-After`.",
)
NOT_BASE64: Final = Kind(409, "not-base64", "The key is not base64", "Encode it, or leave key_encoding out.")
MOVED_ON: Final = Kind(
    409, "offset-moved", "The committed offset is another one", "Read the committed offset again, then decide again."
)
NO_ARCHIVE: Final = Kind(409, "no-archive", "This node has no archive", "Start it with `tierlog serve --bucket URL`.")
NOT_READY: Final = Kind(503, "not-ready", "The node cannot serve yet", "Try again shortly.")
STOPPING: Final = Kind(503, "stopping", "The node is stopping", "Try again on another node, or shortly.")

_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "instance", "hint"})


def as_problem(error: errors.TierlogError, extra: Mapping[str, Any] = MappingProxyType({})) -> Problem:
    detail = f"{error.where}: {error.what}" if error.where else error.what
    return Problem(kind_of(error), detail, hint=error.hint, extra=extra)


def document(problem: Problem, instance: str) -> dict[str, Any]:
    kind = problem.kind
    return {
        "type": TYPE_PREFIX + kind.name,
        "title": kind.title,
        "status": kind.status,
        # Both may quote the request, which need not be text. What is not text becomes a question mark.
        "detail": problem.detail.encode(errors="replace").decode(),
        "instance": instance.encode(errors="replace").decode(),
        "hint": problem.hint,
        **problem.extra,
    }


def from_document(status: int, said: Any) -> Problem:
    """Returns the refusal of another broker, in its own words."""
    told = said if isinstance(said, dict) else {}
    name = str(told.get("type", "")).removeprefix(TYPE_PREFIX) or INTERNAL.name
    kind = Kind(status, name, str(told.get("title", INTERNAL.title)), str(told.get("hint", INTERNAL.hint)))
    extra = {member: value for member, value in told.items() if member not in _MEMBERS}
    return Problem(kind, str(told.get("detail", f"another broker answered {status}")), extra=extra)


def respond(problem: Problem, instance: str) -> web.Response:
    response = web.Response(
        status=problem.kind.status,
        body=orjson.dumps(document(problem, instance)),
        content_type=MEDIA_TYPE,
        headers=problem.headers,
    )
    if problem.kind.status in (429, 503) and "Retry-After" not in response.headers:
        response.headers["Retry-After"] = "1"
    if problem.close:
        response.force_close()
    return response
