"""The names of all objects in a bucket: made here, parsed here, nowhere else.

    topic=<topic>/partition=<n>/<stem>.parquet                 the rows, one object per sealed segment
    _tierlog/<topic>.<topic id>/<n>/index/<stem>.index         where each row group is, and its checksum
    _tierlog/<topic>.<topic id>/<n>/aside/<stem>.aside         the batches that are no rows: aborted ones, and markers
    _tierlog/<topic>.<topic id>/<n>/manifest/<~epoch>-<~sequence>.manifest    which segments exist: readers follow it
    _tierlog/<topic>.<topic id>/<n>/pages/<base offset>-<uuid>.page           closed parts of manifests
    _tierlog/<topic>.<topic id>/<n>/proposals/<uuid>.proposal, .refused       rewritten segments, refusals
    _tierlog/<topic>.<topic id>/topic/<~version>.json          the topic itself, to restore it from the bucket alone
    _tierlog/<topic>.<topic id>/pins/<name>.json               jobs that suspend retention while they run
    _tierlog/probe/<uuid>                                      a test of the bucket when a broker starts, then deleted

`stem` is `<base offset, 20 digits>-<leader epoch>-<uuid>`. It is unique, so no writer ever overwrites another's object.
`~` marks a number that counts down, so that a LIST gives the newest first. Topic names need no escaping: they are
`[a-zA-Z0-9._-]`. Folders that start with `_` are invisible to Spark, Hive, Trino and DuckDB's Hive discovery.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from hot_tier.ids import LeaderEpoch, Offset, PartitionId

ROOT: Final = "_tierlog/"
PROBES: Final = f"{ROOT}probe/"
_EPOCHS: Final = 10**10 - 1
_SEQUENCES: Final = 10**20 - 1

_STEM = re.compile(r"(\d{20})-(\d+)-([0-9a-f]{32})")
_TOPIC_FOLDER = re.compile(
    r"_tierlog/([a-zA-Z0-9._-]{1,249})\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(.*)", re.S
)


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    base_offset: Offset
    leader_epoch: LeaderEpoch
    """The epoch of the leader that archived the segment. The epochs of its records are in the manifest."""
    uuid: str

    @property
    def stem(self) -> str:
        return f"{self.base_offset:020}-{self.leader_epoch}-{self.uuid}"


def parse_stem(stem: str) -> SegmentName | None:
    found = _STEM.fullmatch(stem)
    return SegmentName(Offset(int(found[1])), LeaderEpoch(int(found[2])), found[3]) if found else None


class Version(NamedTuple):
    """A manifest's place in history. The highest version is the current one."""

    leader_epoch: LeaderEpoch
    sequence: int


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    topic: str
    topic_id: UUID
    partition: PartitionId

    @property
    def rows_folder(self) -> str:
        return f"topic={self.topic}/partition={self.partition}/"

    @property
    def folder(self) -> str:
        return f"{topic_folder(self.topic, self.topic_id)}{self.partition}/"

    @property
    def index_folder(self) -> str:
        return f"{self.folder}index/"

    @property
    def aside_folder(self) -> str:
        return f"{self.folder}aside/"

    @property
    def manifest_folder(self) -> str:
        return f"{self.folder}manifest/"

    @property
    def pages_folder(self) -> str:
        return f"{self.folder}pages/"

    @property
    def proposals_folder(self) -> str:
        return f"{self.folder}proposals/"

    def rows(self, name: SegmentName) -> str:
        return f"{self.rows_folder}{name.stem}.parquet"

    def index(self, name: SegmentName) -> str:
        return f"{self.index_folder}{name.stem}.index"

    def aside(self, name: SegmentName) -> str:
        return f"{self.aside_folder}{name.stem}.aside"

    def objects(self, name: SegmentName) -> list[str]:
        """Returns the keys of all objects that a segment may have."""
        return [self.rows(name), self.index(name), self.aside(name)]

    def manifest(self, version: Version) -> str:
        epoch, sequence = _EPOCHS - version.leader_epoch, _SEQUENCES - version.sequence
        return f"{self.manifest_folder}{epoch:010}-{sequence:020}.manifest"

    def page(self, base_offset: Offset, uuid: str) -> str:
        return f"{self.pages_folder}{base_offset:020}-{uuid}.page"

    def proposal(self, uuid: str) -> str:
        return f"{self.proposals_folder}{uuid}.proposal"

    def refusal(self, uuid: str) -> str:
        """Returns the key of the refusal of a proposal. It lies beside the proposal."""
        return f"{self.proposals_folder}{uuid}.refused"

    def parse_rows(self, key: str) -> SegmentName | None:
        return _parse_segment(key, self.rows_folder, ".parquet")

    def parse_index(self, key: str) -> SegmentName | None:
        return _parse_segment(key, self.index_folder, ".index")

    def parse_aside(self, key: str) -> SegmentName | None:
        return _parse_segment(key, self.aside_folder, ".aside")

    def parse_segment(self, key: str) -> SegmentName | None:
        """Returns the segment that an object belongs to, whichever of its objects it is."""
        return self.parse_rows(key) or self.parse_index(key) or self.parse_aside(key)

    def parse_page(self, key: str) -> str | None:
        """Returns the page's uuid."""
        found = re.fullmatch(r"\d{20}-([0-9a-f]{32})\.page", key.removeprefix(self.pages_folder))
        return found[1] if found else None

    def parse_proposal(self, key: str) -> str | None:
        """Returns the proposal's uuid."""
        found = re.fullmatch(r"([0-9a-f]{32})\.proposal", key.removeprefix(self.proposals_folder))
        return found[1] if found else None

    def parse_refusal(self, key: str) -> str | None:
        """Returns the uuid of the refused proposal."""
        found = re.fullmatch(r"([0-9a-f]{32})\.refused", key.removeprefix(self.proposals_folder))
        return found[1] if found else None

    def parse_manifest(self, key: str) -> Version | None:
        name = key.removeprefix(self.manifest_folder)
        found = re.fullmatch(r"(\d{10})-(\d{20})\.manifest", name)
        if not found:
            return None
        return Version(LeaderEpoch(_EPOCHS - int(found[1])), _SEQUENCES - int(found[2]))


def topic_folder(topic: str, topic_id: UUID) -> str:
    return f"{ROOT}{topic}.{topic_id}/"


def topic_descriptions(topic: str, topic_id: UUID) -> str:
    return f"{topic_folder(topic, topic_id)}topic/"


def topic_description(topic: str, topic_id: UUID, version: int) -> str:
    return f"{topic_descriptions(topic, topic_id)}{_SEQUENCES - version:020}.json"


def pins_folder(topic: str, topic_id: UUID) -> str:
    return f"{topic_folder(topic, topic_id)}pins/"


def pin(topic: str, topic_id: UUID, name: str) -> str:
    """`name` follows the rules of topic names, so it needs no escaping."""
    return f"{pins_folder(topic, topic_id)}{name}.json"


def parse_topic_description(key: str) -> int | None:
    """Returns the description's version."""
    name = key.rpartition("/")[2].removesuffix(".json")
    return _SEQUENCES - int(name) if name.isdecimal() else None


def parse_topic_folder(key: str) -> tuple[str, UUID, str] | None:
    """Returns (topic, topic id, the rest of the key) of any key below `_tierlog/<topic>.<topic id>/`."""
    found = _TOPIC_FOLDER.fullmatch(key)
    return (found[1], UUID(found[2]), found[3]) if found else None


def _parse_segment(key: str, folder: str, suffix: str) -> SegmentName | None:
    if not (key.startswith(folder) and key.endswith(suffix)):
        return None
    return parse_stem(key[len(folder) : -len(suffix)])
