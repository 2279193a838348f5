"""A small client of a node's HTTP API for the command line. It uses the standard library only, so that it loads
quickly.

It has one connection, which stays open, and sends one request at a time. Each thread makes its own `Client`. If the
node refuses a request, `Refused` is raised with the node's reason; if no node can be reached, `ServerUnreachable`. With
several servers it uses the first that accepts a connection, as long as that server lives. A connection that the node
has closed meanwhile is opened anew. It never repeats a request, except for a GET over a connection that is closed just
then.
"""

import base64
import http.client
import json
import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from hot_tier.errors import TierlogError
from tierlog.access import Access, access_to

TIMEOUT_S = 60.0
CONNECT_S = 5.0
"""After this time the next of several servers is tried."""


class ServerUnreachable(TierlogError):
    """No HTTP server answers at the address."""

    retriable = True


class Refused(TierlogError):
    """The node answered with a problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any], where: str) -> None:
        super().__init__(
            str(problem.get("detail") or problem.get("title") or f"HTTP status {status}"),
            where=where,
            hint=str(problem.get("hint") or ""),
        )
        self.status = status
        self.problem = problem
        self.kind = str(problem.get("type", "")).rpartition(":")[2]


class BadServer(TierlogError):
    """The address is not an HTTP address, or the answer is not one of the API."""


def path(*parts: str | int) -> str:
    """Returns `/api/v1/…` with each part escaped."""
    return "/api/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def _connection_to(server: str, access: Access) -> tuple[str, http.client.HTTPConnection]:
    try:
        url = urlsplit(server if "://" in server else f"http://{server}")
        host, port = (url.hostname or "").encode("idna").decode(), url.port
    except ValueError:
        host = ""
    if not host or url.scheme not in ("http", "https") or url.path not in ("", "/"):
        hint = "write http://HOST:PORT, or several with commas"
        raise BadServer(f"{server!r} is not a node's address", where="--server", hint=hint)
    if url.scheme == "https":
        return f"{url.scheme}://{url.netloc}", http.client.HTTPSConnection(host, port, context=access.context())
    return f"{url.scheme}://{url.netloc}", http.client.HTTPConnection(host, port)


def _authorization(access: Access) -> str:
    """Returns what logs in by an API key, or else by a user and a password; empty if there is neither."""
    if key := access.bearer():
        return f"Bearer {key}"
    if login := access.login():
        return "Basic " + base64.b64encode(":".join(login).encode()).decode()
    return ""


def _is_over(connection: socket.socket) -> bool:
    """Whether the node has closed it: between two answers nothing else arrives."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(0))


class Client:
    def __init__(
        self,
        servers: str = "",
        *,
        profile: str | None = None,
        client_id: str = "tierlog-cli",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`servers` is one address, or several separated by commas. It is empty if a profile or a note says it; see
        `tierlog.access`, also for `profile`."""
        access = access_to(servers, profile)
        self._nodes = [_connection_to(server.strip(), access) for server in access.server.split(",")]
        self._timeout_s = timeout_s
        self.server, self._connection = self._nodes[0]
        self._headers = {"User-Agent": client_id, "Accept": "application/json"}
        encrypted = all(server.startswith("https://") for server, _ in self._nodes)
        if encrypted and (authorization := _authorization(access)):
            self._headers["Authorization"] = authorization

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: Any) -> Any:
        return self._document(self._send("GET", path, query, None, headers or {}))

    def post(self, path: str, document: Any, **query: Any) -> Any:
        return self._document(self._send_json("POST", path, document, query))

    def patch(self, path: str, document: Any) -> Any:
        return self._document(self._send_json("PATCH", path, document, {}))

    def put(self, path: str, document: Any) -> Any:
        return self._document(self._send_json("PUT", path, document, {}))

    def delete(self, path: str, **query: Any) -> Any:
        return self._document(self._send("DELETE", path, query, None, {}))

    def post_lines(self, path: str, document: Any) -> Iterator[Any]:
        """Yields the documents of an NDJSON answer as they arrive."""
        response = self._send_json("POST", path, document, {})
        try:
            for line in response:
                yield json.loads(line)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise self._unreachable(error) from None
        except ValueError:
            # The answer was cut within a line. http.client does not report a missing end.
            self._connection.close()
            raise ServerUnreachable("the answer was cut off", where=self.server, hint="try again") from None

    def post_raw(self, path: str, document: Any, accept: str) -> http.client.HTTPResponse:
        """Returns an answer to be read as it comes."""
        body = json.dumps(document).encode()
        return self._send("POST", path, {}, body, {"Content-Type": "application/json", "Accept": accept})

    def _send_json(self, method: str, path: str, document: Any, query: Mapping[str, Any]) -> http.client.HTTPResponse:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self._send(method, path, query, body, {"Content-Type": "application/json"})

    def _send(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        if self._connection.sock is not None and _is_over(self._connection.sock):
            self._connection.close()
        kept = self._connection.sock is not None
        if not kept:
            self._connect()
        try:
            response = self._exchange(method, target, body, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self._connection.close()
            if not kept or method != "GET":
                raise self._unreachable(error) from None
            self._connect()
            response = self._retry(method, target, headers)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise self._unreachable(error) from None
        if response.status >= 400:
            raise self._refusal(response, f"{method} {path}")
        return response

    def _connect(self) -> None:
        failed: list[ServerUnreachable] = []
        for server, connection in self._nodes:
            self.server, self._connection = server, connection
            connection.timeout = self._timeout_s if len(self._nodes) == 1 else min(CONNECT_S, self._timeout_s)
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                failed.append(self._unreachable(error))
            else:
                connection.sock.settimeout(self._timeout_s)
                return
        if len(failed) == 1:
            raise failed[0]
        tried = "; ".join(f"{each.where}: {each.what}" for each in failed)
        raise ServerUnreachable(tried, where="--server", hint=failed[0].hint)

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        # http.client would encode a str as Latin-1.
        as_bytes = {name: value.encode() for name, value in {**self._headers, **headers}.items()}
        self._connection.request(method, target, body=body, headers=as_bytes)
        return self._connection.getresponse()

    def _retry(self, method: str, target: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        try:
            return self._exchange(method, target, None, headers)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "name the file of its authority: `ca` in a profile, or TIERLOG_CA"
            return ServerUnreachable(
                f"the node's certificate is not trusted: {error.verify_message}", where=self.server, hint=hint
            )
        if isinstance(error, ssl.SSLError):
            hint = "does it speak http:// there, or want a certificate (`certificate` and `key` in a profile)?"
            return ServerUnreachable(f"no TLS with the node: {error.reason or reason}", where=self.server, hint=hint)
        hint = "start one with `tierlog serve`, or name another with --server or TIERLOG_SERVER"
        if isinstance(error, http.client.HTTPException | ConnectionResetError):
            hint = (
                "something listens there: is it a node's HTTP address, by default port 8080, and not that for Kafka? "
            )
            hint += "A secured node is at https://"
        return ServerUnreachable(f"no node answers: {reason}", where=self.server, hint=hint)

    def _document(self, response: http.client.HTTPResponse) -> Any:
        try:
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise self._unreachable(error) from None
        if not body:
            return None
        try:
            return json.loads(body)
        except ValueError:
            raise BadServer(
                "the answer is not JSON",
                where=self.server,
                hint="check that this is the HTTP address of a tierlog node",
            ) from None

    def _refusal(self, response: http.client.HTTPResponse, what: str) -> TierlogError:
        try:
            problem = self._document(response)
        except BadServer as error:
            return error
        if not isinstance(problem, dict):
            problem = {}
        return Refused(response.status, problem, where=f"{self.server} {what}")
