"""A log at rest: what recovery finds, what a clean stop writes down, what a `PartitionLog` is made from.

After a clean stop one file, `clean-shutdown`, holds the state of every log of the data directory, so a restart opens
no log file at all: 4,000 logs come back in a fraction of a second. It is deleted, and the deletion synced, before
the first write after that restart; where it is missing or damaged, every log is recovered from its own files.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson

from hot_tier.log import names
from hot_tier.log.aborted_files import read_aborted, write_aborted
from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.files import FilePool
from hot_tier.log.index import UNKNOWN, Seal
from hot_tier.log.producers import ProducerState, read_producers
from hot_tier.log.recovery_points import Key
from hot_tier.log.sealed_text import read_sealed_text, write_sealed_text
from hot_tier.log.segment import Segment

DEFAULT_INDEX_INTERVAL: Final = 4096

_SEAL_FIELDS: Final = 8
"""Of a seal, as the first version of the file lists them; the rest is in `heads`, which that version does not read."""


@dataclass(slots=True)
class LogState:
    directory: str = ""
    segments: list[Segment] = field(default_factory=list)
    start_offset: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerState = field(default_factory=ProducerState)
    start_known: bool = False
    """`log-start` says where the first segment starts."""
    lost_end: int = 0
    """Its directory is missing, and had all records below."""

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else self.start_offset

    @property
    def gaps_below(self) -> int:
        """Returns the end of the last segment with gaps between its batches; 0: there is none."""
        return max((segment.end_offset for segment in self.segments if not segment.dense), default=0)


def write_clean_shutdown(states: Mapping[Key, LogState], logs_directory: str) -> bytes:
    logs = [
        {
            "topic_id": str(topic_id),
            "partition": partition,
            "directory": os.path.relpath(state.directory, logs_directory) if state.segments else "",
            "start_offset": state.start_offset,
            "epochs": state.epochs.entries(),
            "producers": b64encode(state.producers.write(state.end_offset)).decode() if len(state.producers) else "",
            "segments": [
                [*segment.seal(sealed=segment.sealed)[:_SEAL_FIELDS], segment.created_ms, segment.damage.positions]
                for segment in state.segments
            ],
            "start_known": state.start_known,
            "lost_end": state.lost_end,
            "heads": [[segment.batches, segment.header_digest, segment.damage.what] for segment in state.segments],
            **_transactions(state),
        }
        for (topic_id, partition), state in states.items()
    ]
    return write_sealed_text(names.CLEAN_SHUTDOWN, [orjson.dumps(logs).decode()])


def read_clean_shutdown(content: bytes, logs_directory: str, pool: FilePool) -> dict[Key, LogState] | None:
    """Returns the states of all logs, or None if the file is not whole: then nothing in it counts."""
    lines = read_sealed_text(names.CLEAN_SHUTDOWN, content)
    if lines is None:
        return None
    return {
        (UUID(log["topic_id"]), log["partition"]): _state(log, logs_directory, pool) for log in orjson.loads(lines[0])
    }


def _state(log: dict[str, Any], logs_directory: str, pool: FilePool) -> LogState:
    state = LogState(
        os.path.join(logs_directory, log["directory"]), [], log["start_offset"], LeaderEpochs(log["epochs"])
    )
    unknown = [[UNKNOWN, 0, ""]] * len(log["segments"])
    for (*seal, created_ms, damaged), heads in zip(log["segments"], log.get("heads", unknown), strict=True):
        segment = Segment.from_seal(pool, state.directory, Seal(*seal), DEFAULT_INDEX_INTERVAL)
        segment.created_ms = created_ms
        segment.damage.positions = damaged
        *digest, segment.damage.what = heads
        segment.wrote(*digest)
        if damaged and not segment.damage.what:
            segment.damage.what = f"byte {damaged[0]}: found by an earlier process"
        segment.unread = segment.damage.unsound = segment.base_offset in log.get("unread", ())
        state.segments.append(segment)
    state.start_known = log.get("start_known", False)
    state.lost_end = log.get("lost_end", 0)
    if log["producers"]:
        found = read_producers(b64decode(log["producers"]))
        assert found is not None
        state.producers = found[1]
    if log.get("aborted"):
        aborted = read_aborted(b64decode(log["aborted"]), 0, state.end_offset)
        assert aborted is not None
        state.producers.transactions.aborted = aborted
        for segment in state.segments:
            segment.aborts = segment.sealed and len(aborted.between(segment.base_offset, segment.end_offset)) > 0
    return state


def _transactions(state: LogState) -> dict[str, Any]:
    """Returns what is written down of aborted transactions: nothing, where there were none."""
    found: dict[str, Any] = {}
    if len(state.producers.transactions.aborted):
        content = write_aborted(state.producers.transactions.aborted, 0, state.end_offset)
        found["aborted"] = b64encode(content).decode()
    unread = [segment.base_offset for segment in state.segments if segment.unread]
    return found | {"unread": unread} if unread else found
