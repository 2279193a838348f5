"""The batches in a broker's segment files, read without its help; meant for after a clean stop."""

import struct
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.history import StoredBatch

HEAD = struct.Struct(">qiibIhi")  # base offset, length, leader epoch, magic, crc, attributes, last offset delta
PREFIX_BYTES = 12  # base offset and length, which the length does not count


def stored_partitions(data_dir: Path, topic: str) -> dict[int, list[StoredBatch]]:
    return {number: list(_batches(folder)) for number, folder in _folders(data_dir, topic)}


def _folders(data_dir: Path, topic: str) -> Iterator[tuple[int, Path]]:
    """tierlog has logs/<topic>.<topic id>/<partition>, Apache Kafka <topic>-<partition>."""
    for folder in data_dir.glob(f"logs/{topic}.*/*"):
        if folder.name.isdigit():
            yield int(folder.name), folder
    for folder in data_dir.glob(f"{topic}-*"):
        yield int(folder.name.rpartition("-")[2]), folder


def _batches(folder: Path) -> Iterator[StoredBatch]:
    for path in sorted(folder.glob("*.log")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            first, length, epoch, _, _, _, delta = HEAD.unpack_from(data, position)
            end = position + PREFIX_BYTES + length
            assert length > 0 and end <= len(data), f"{path} is torn at {position} after a clean stop"
            yield StoredBatch(first, first + delta, epoch, data[position:end])
            position = end
