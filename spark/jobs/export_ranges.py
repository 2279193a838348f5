"""Exports in a folder of Parquet files: which ranges are there, and which of them a new one replaces.

    <target>/records/topic=orders/partition=3/offsets=0-120000/*.parquet
    <target>/undecodable/topic=orders/partition=3/offsets=0-120000/*.parquet
    <target>/records/topic=orders/partition=3/times=1767225600000-1767312000000/*.parquet

A chunk is a range of one partition, by offsets or by times, with both ends in its name. A new export replaces the
chunks that its range covers. It is refused if its range covers a chunk only in part, because some rows would then be
there twice. New rows are written to another folder, counted, and then moved into place. A run that is killed leaves
nothing that a reader sees, or leaves a state that the same run, repeated, puts right.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from hot_tier.errors import SettingsError
from spark.jobs.command import JobRefused

TABLES = ("records", "undecodable")


class ExportRefused(JobRefused):
    """What the target already holds contradicts this export."""


@dataclass(frozen=True, slots=True)
class Chunk:
    by: Literal["offsets", "times"]
    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.by}={self.start}-{self.end}"

    def covers(self, other: "Chunk") -> bool:
        return self.by == other.by and self.start <= other.start and other.end <= self.end

    def meets(self, other: "Chunk") -> bool:
        """Returns whether a row may lie in both. For a range by offsets and one by times this is unknown, so True."""
        return self.by != other.by or (self.start < other.end and other.start < self.end)


def parse_chunk(name: str) -> Chunk | None:
    found = re.fullmatch(r"(offsets|times)=(\d+)-(\d+)", name)
    return Chunk(found[1], int(found[2]), int(found[3])) if found else None  # type: ignore[arg-type]


def replaced(there: Sequence[Chunk], new: Chunk, where: str) -> list[Chunk]:
    """Returns the existing chunks that the new one replaces."""
    for chunk in there:
        if new.meets(chunk) and not new.covers(chunk):
            raise ExportRefused(
                f"some rows of {new.name} would be there twice: {chunk.name} is already exported",
                where=where,
                hint="export only the rest, or a range that covers all of it, or export to another place",
            )
    return [chunk for chunk in there if new.covers(chunk)]


class Folder:
    """A folder in any of Hadoop's file systems, with this session's settings."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.url = url.rstrip("/")
        if self.url.startswith("s3:"):
            self.url = f"s3a{self.url[2:]}"
        self._jvm: Any = spark._jvm
        try:
            root = self._path("")
            self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            text = str(error.java_exception.getMessage())
            raise SettingsError(
                f"cannot be used: {text}", where=url, hint="docs/SPARK.md says how to set up S3"
            ) from error

    def names(self, below: str) -> list[str]:
        """Returns what lies directly in a folder, or nothing if the folder does not exist."""
        path = self._path(below)
        if not self._files.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(path))

    def chunks(self, below: str) -> list[Chunk]:
        return [chunk for name in self.names(below) if (chunk := parse_chunk(name))]

    def move(self, below: str, to: str) -> None:
        target = self._path(to)
        self._files.mkdirs(target.getParent())
        if not self._files.rename(self._path(below), target):
            raise ExportRefused("cannot be moved into place", where=f"{self.url}/{below}")

    def delete(self, below: str) -> None:
        self._files.delete(self._path(below), True)

    def _path(self, below: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{below}" if below else self.url)
