"""The hot tail over HTTP: where a topic's partitions end, and their records as Arrow batches.

A stream of records that breaks off is resumed there. A cut stream is never taken for complete: an HTTP body without its
end is an error. A stream may also end too early, when a new leader does not know yet how much is committed. So it
counts as complete only once the service says that it has all of the range.
"""

import base64
import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import numpy as np
import pyarrow as pa

from hot_tier.errors import SettingsError, TierlogError, UnknownTopic
from hot_tier.secrets import resolve_secret

_ARROW: Final = "application/vnd.apache.arrow.stream"
_TIMEOUT_S: Final = 60.0
_ANSWER_S: Final = 3600.0
"""Long enough for a leader that reads whole objects before it answers."""
_ATTEMPTS: Final = 4
_PAUSE_S: Final = 0.2


class GatewayUnavailable(TierlogError):
    """The gateway gave no answer, or none that can be used."""

    retriable = True


@dataclass(frozen=True, slots=True)
class Gateway:
    """A service that has the hot tail, and the login for it. Tasks carry it to executors."""

    url: str
    ca: str = ""
    """File (PEM), on every machine that runs tasks; empty: SSL_CERT_FILE, else the system's authorities."""
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Authorization": f"Basic {login}"} if self.user else {}

    @property
    def context(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https://"):
            return None
        try:
            return ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            raise SettingsError(
                f"{self.ca} cannot be used: {error.strerror or error}",
                where="gatewayCa",
                hint="name a readable file in PEM, on every machine that runs tasks",
            ) from None


def open_gateway(url: str, ca: str = "", user: str = "", password: str = "") -> Gateway:
    """Returns the gateway at `url`. What is empty is taken from this process's TIERLOG_CA, TIERLOG_USER and
    TIERLOG_PASSWORD, for an https URL; a password may be a reference."""
    url = url.rstrip("/")
    if not url.startswith("https://"):
        if user:
            raise SettingsError("gatewayPassword would go unencrypted", where="gateway", hint="begin it with https://")
        return Gateway(url)
    if not user:
        user, password = os.environ.get("TIERLOG_USER", ""), os.environ.get("TIERLOG_PASSWORD", "")
    elif not password:
        raise SettingsError("gatewayUser and gatewayPassword go together", hint="give both or none")
    return Gateway(url, ca or os.environ.get("TIERLOG_CA", ""), user, resolve_secret(password, "gatewayPassword"))


@dataclass(frozen=True, slots=True)
class HotRange:
    start_offset: int
    """The start of the whole log, over both tiers."""
    end_offset: int
    """The last stable offset: every record below it is committed."""


@dataclass(frozen=True, slots=True)
class HotTopic:
    id: UUID
    ranges: dict[int, HotRange]
    """By partition."""


def hot_topic(gateway: Gateway, topic: str) -> HotTopic:
    with _opened(gateway, f"/api/v1/topics/{quote(topic, safe='')}", "application/json") as response:
        found = json.load(response)
    led = [each for each in found["partitions"] if each["last_stable_offset"] is not None]
    if len(led) < len(found["partitions"]):
        raise GatewayUnavailable(
            f"does not lead every partition of {topic}", where=gateway.url, hint="name the node that does"
        )
    return HotTopic(
        UUID(found["id"]),
        {each["partition"]: HotRange(each["log_start_offset"], each["last_stable_offset"]) for each in led},
    )


def consider_proposals(gateway: Gateway, topic: str, partition: int) -> None:
    """Asks the partition's leader to answer its waiting proposals. Returns when it has answered."""
    address = f"/api/v1/topics/{quote(topic, safe='')}/partitions/{partition}/archive/proposals"
    with _opened(gateway, address, "application/json", method="POST", timeout_s=_ANSWER_S) as response:
        response.read()


def hot_batches(gateway: Gateway, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yields every record of [start, end), with the columns of the archive. The range must be committed."""
    address = f"/api/v1/topics/{quote(topic, safe='')}/partitions/{partition}/messages"
    failures = 0
    all_there = False
    while start < end:
        try:
            with _opened(gateway, f"{address}?offset={start}", _ARROW) as response:
                for batch in pa.ipc.open_stream(response):
                    last = batch.column(0)[-1].as_py()
                    if last >= end:
                        batch = batch.slice(0, int(np.searchsorted(batch.column(0).to_numpy(), end)))
                    if batch.num_rows:
                        yield batch
                    start = last + 1
                    if start >= end:
                        return
            if all_there:
                return
            committed = hot_topic(gateway, topic).ranges.get(partition)
            all_there = committed is not None and committed.end_offset >= end
            if not all_there:
                raise GatewayUnavailable(f"it has only {committed}", where=gateway.url)
        except (GatewayUnavailable, OSError, http.client.HTTPException, pa.ArrowInvalid) as error:
            failures += 1
            if failures == _ATTEMPTS:
                raise GatewayUnavailable(
                    f"the records of {topic}-{partition} from offset {start} broke off: {error}", where=gateway.url
                ) from error
            time.sleep(_PAUSE_S * 2**failures)


def _opened(gateway: Gateway, address: str, accept: str, *, method: str = "GET", timeout_s: float = _TIMEOUT_S) -> Any:
    headers = {"Accept": accept, **gateway.headers}
    request = urllib.request.Request(f"{gateway.url}{address}", headers=headers, method=method)
    try:
        return urllib.request.urlopen(request, timeout=timeout_s, context=gateway.context)
    except urllib.error.HTTPError as error:
        with error:
            problem = _problem(error.read())
        if error.code == 404:
            raise UnknownTopic(problem, where=gateway.url) from error
        hint = "set gatewayUser and gatewayPassword, or TIERLOG_USER and TIERLOG_PASSWORD" if error.code == 401 else ""
        where = f"{gateway.url}{address}"
        raise GatewayUnavailable(f"answered {error.code}: {problem}", where=where, hint=hint) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise GatewayUnavailable(
            f"cannot be reached: {getattr(error, 'reason', error)}",
            where=gateway.url,
            hint='check "gateway", or read without includeHot',
        ) from error


def _problem(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
