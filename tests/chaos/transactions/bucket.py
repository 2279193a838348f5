"""The rows of the bucket as two readers find them who know nothing of transactions.

One reads every Parquet file that a plain glob finds, the other those that the manifest names. Nothing of the service is
imported: pyarrow reads the files, HTTP tells which they are.
"""

import json
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.process import wait_for
from benchmarks.service import TierlogServer
from tests.chaos.values import read_value

from .history import History, Place, Row

ARCHIVED_S = 60.0
ASK_S = 20.0
CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": "131072",
    "segment.ms": "2000",
    "local.retention.bytes": "131072",
    "file.delete.delay.ms": "0",
}
"""Most of a log is in the bucket alone, and what is written no more is archived soon."""
SETTINGS = ("archive.check_ms=500", "archive.delete_grace_ms=0", "archive.orphan_age_ms=0")


class Bucket:
    """The archive of some brokers, in a directory."""

    def __init__(self, path: Path, brokers: Iterable[TierlogServer]) -> None:
        self._path, self._brokers = path, list(brokers)

    def read(self, history: History, ends: Mapping[Place, int]) -> None:
        """Waits until all is archived, up to where each partition ends, and writes down what is there."""
        wait_for(lambda: not self._missing(ends), "everything to be archived", ARCHIVED_S, interval_s=0.5)
        for broker in self._brokers:
            # What was uploaded by a broker that died before it could say so is in no manifest, but in the glob.
            self._ask(broker, "archive/gc", b"{}")
        history.archived = dict(ends)
        history.tables["every file of the bucket"] = self._rows(
            {place: self._glob(place) for place in ends},
        )
        history.tables["the files that the manifest names"] = self._rows(
            {place: self._named(place) for place in ends},
        )

    def _missing(self, ends: Mapping[Place, int]) -> dict[Place, int]:
        found = {}
        for topic in {place.topic for place in ends}:
            for each in self._ask(self._brokers[0], f"topics/{topic}/archive?limit=0")["partitions"]:
                archived = each["archived"]["end_offset"] if each["archived"] else 0
                place = Place(topic, each["partition"])
                if archived < ends[place]:
                    found[place] = archived
        return found

    def _glob(self, place: Place) -> list[Path]:
        return sorted(self._path.rglob(f"topic={place.topic}/partition={place.number}/**/*.parquet"))

    def _named(self, place: Place) -> list[Path]:
        found, offset = [], 0
        while offset is not None:
            path = f"topics/{place.topic}/archive?partition={place.number}&offset={offset}"
            (page,) = self._ask(self._brokers[0], path)["partitions"]
            found += [self._path / each["rows_object"] for each in page["segments"] if each["rows"]]
            offset = page["next_offset"]
        return found

    def _rows(self, files: Mapping[Place, Iterable[Path]]) -> dict[Place, list[Row]]:
        found: dict[Place, list[Row]] = {}
        for place, paths in files.items():
            rows = found[place] = []
            for path in paths:
                table = pq.read_table(path, columns=["offset", "value"], partitioning=None)
                offsets, values = table["offset"].to_pylist(), table["value"].to_pylist()
                rows += [Row(offset, read_value(value)) for offset, value in zip(offsets, values, strict=True)]
        return found

    def _ask(self, broker: TierlogServer, path: str, body: bytes | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://{broker.host}:{broker.http_port}/api/v1/{path}", body, headers, method="POST" if body else "GET"
        )
        with urllib.request.urlopen(request, timeout=ASK_S) as answer:
            return json.load(answer)
