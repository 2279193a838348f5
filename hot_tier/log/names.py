"""Names of everything under a data directory, made and parsed here alone.

    <data_dir>/lock                                     held while a broker runs
               clean-shutdown                           present only after a clean stop
               recovery-points                          what each log has synced
               in-doubt                                 logs that miss something, until nobody counts on them
               logs/<topic>.<topic id>/<partition>/     one directory per partition, made by its first write
                    <base offset>.log                   record batches
                    <base offset>.index                 offset → position; says that the segment is sealed
                    <base offset>.timeindex             timestamp → offset
                    <base offset>.aborted               aborted transactions whose markers are in the segment
                    <offset>.producers                  producer state up to that offset
                    leader-epochs                       where each leader epoch starts
                    log-start                           first offset that may be read, once DeleteRecords moved it
                    <base offset>.log.cleaned, .timeindex.cleaned, .index.cleaned, .swap    a compaction's output
                    *.deleted                           waits for file.delete.delay.ms
               logs/*.deleted                           a topic being removed

Offsets are written with 20 digits, so that names sort as numbers. A topic name may have 249 characters and a
file name 255, so a long topic's directory carries only the beginning of its name; the id tells topics apart.
"""

import os
import re
from typing import Final, NamedTuple
from uuid import UUID

from hot_tier.ids import PartitionId, TopicId

LOCK: Final = "lock"
CLEAN_SHUTDOWN: Final = "clean-shutdown"
RECOVERY_POINTS: Final = "recovery-points"
IN_DOUBT: Final = "in-doubt"
LOGS: Final = "logs"

LEADER_EPOCHS: Final = "leader-epochs"
LOG_START: Final = "log-start"

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
ABORTED: Final = ".aborted"
PRODUCERS: Final = ".producers"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
TEMPORARY: Final = ".tmp"

_MAX_FILE_NAME: Final = 255
_OFFSET_FILE: Final = re.compile(r"([0-9]{20})(\.[a-z.]+)")


class OffsetFile(NamedTuple):
    offset: int
    suffix: str


class TopicDirectory(NamedTuple):
    """`topic` is cut short where the whole name did not fit."""

    topic: str
    topic_id: TopicId


def offset_file(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> OffsetFile | None:
    match = _OFFSET_FILE.fullmatch(name)
    return OffsetFile(int(match[1]), match[2]) if match else None


def topic_directory(topic: str, topic_id: TopicId) -> str:
    suffix = f".{topic_id}"
    return topic[: _MAX_FILE_NAME - len(DELETED) - len(suffix)] + suffix


def parse_topic_directory(name: str) -> TopicDirectory | None:
    topic, dot, text = name.rpartition(".")
    if not topic or not dot or len(text) != 36:
        return None
    try:
        topic_id = UUID(text)
    except ValueError:
        return None
    return TopicDirectory(topic, topic_id) if str(topic_id) == text else None


def partition_directory(partition: int) -> str:
    return str(partition)


def log_directory(topic: str, topic_id: TopicId, partition: int) -> str:
    return os.path.join(topic_directory(topic, topic_id), partition_directory(partition))


def parse_partition_directory(name: str) -> PartitionId | None:
    return PartitionId(int(name)) if name.isascii() and name.isdigit() and str(int(name)) == name else None
