"""The hot tail over HTTP: where a topic's partitions end, and their records as Arrow batches.

A stream of records is resumed where it broke off. It is never taken for complete when it was cut: an HTTP body without
its end is an error. One that ends too early, as that of a new leader may which does not know yet how much is committed,
counts only once the service says that it has all of it.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import numpy as np
import pyarrow as pa

from hot_tier.errors import TierlogError, UnknownTopic

_ARROW: Final = "application/vnd.apache.arrow.stream"
_TIMEOUT_S: Final = 60.0
_ANSWER_S: Final = 3600.0
"""For a leader that reads whole objects before it answers."""
_ATTEMPTS: Final = 4
_PAUSE_S: Final = 0.2


class GatewayUnavailable(TierlogError):
    """No answer, or none that could be used."""

    retriable = True


@dataclass(frozen=True, slots=True)
class HotRange:
    start_offset: int
    """Of the whole log, both tiers."""
    end_offset: int
    """The last stable offset: below it every record is committed."""


@dataclass(frozen=True, slots=True)
class HotTopic:
    id: UUID
    ranges: dict[int, HotRange]
    """By partition."""


def hot_topic(gateway: str, topic: str) -> HotTopic:
    with _opened(gateway, f"/api/v1/topics/{quote(topic, safe='')}", "application/json") as response:
        found = json.load(response)
    led = [each for each in found["partitions"] if each["last_stable_offset"] is not None]
    if len(led) < len(found["partitions"]):
        raise GatewayUnavailable(
            f"does not lead every partition of {topic}", where=gateway, hint="name the node that does"
        )
    return HotTopic(
        UUID(found["id"]),
        {each["partition"]: HotRange(each["log_start_offset"], each["last_stable_offset"]) for each in led},
    )


def consider_proposals(gateway: str, topic: str, partition: int) -> None:
    """Asks the partition's leader to answer what is proposed for it; returns when it has."""
    address = f"/api/v1/topics/{quote(topic, safe='')}/partitions/{partition}/archive/proposals"
    with _opened(gateway, address, "application/json", method="POST", timeout_s=_ANSWER_S) as response:
        response.read()


def hot_batches(gateway: str, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Every record of [start, end), which is committed, with the columns of the archive."""
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
                raise GatewayUnavailable(f"has only {committed} of it", where=gateway)
        except (GatewayUnavailable, OSError, http.client.HTTPException, pa.ArrowInvalid) as error:
            failures += 1
            if failures == _ATTEMPTS:
                raise GatewayUnavailable(
                    f"the records of {topic}-{partition} from offset {start} broke off: {error}", where=gateway
                ) from error
            time.sleep(_PAUSE_S * 2**failures)


def _opened(gateway: str, address: str, accept: str, *, method: str = "GET", timeout_s: float = _TIMEOUT_S) -> Any:
    request = urllib.request.Request(f"{gateway}{address}", headers={"Accept": accept}, method=method)
    try:
        return urllib.request.urlopen(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        with error:
            problem = _problem(error.read())
        if error.code == 404:
            raise UnknownTopic(problem, where=gateway) from error
        raise GatewayUnavailable(f"answered {error.code}: {problem}", where=f"{gateway}{address}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise GatewayUnavailable(
            f"cannot be reached: {getattr(error, 'reason', error)}",
            where=gateway,
            hint='check "gateway", or read without includeHot',
        ) from error


def _problem(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
