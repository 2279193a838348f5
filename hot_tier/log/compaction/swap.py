"""Puts a compacted segment in the place of those it was made from. A crash leaves either the old ones or the new one.

    write     thread   `<base>.log.cleaned`, `.timeindex.cleaned` and `.index.cleaned` are written and synced
    decide    thread   `.index.cleaned` becomes `<base>.swap`, and the directory is synced: the new segment counts
    exchange  loop     old index files go, old logs become `.deleted`, `.log.cleaned` becomes `.log`
    settle    thread   the directory is synced; `.timeindex.cleaned` becomes `.timeindex` and `.swap` becomes `.index`

The swap file is the new segment's seal: it names the range that it replaces. A crash before `decide` leaves `.cleaned`
files, which recovery removes. After a later crash `finish_swaps` does the rest; any part of it may be done already. If
none is and the new segment is damaged, the old ones stay.
The loop only renames, in one step with the change in memory, so no reader opens the new file with old positions.
"""

import os
import threading
from collections.abc import Sequence

import structlog

from hot_tier.log import names
from hot_tier.log.disk import remove
from hot_tier.log.files import sync_directory
from hot_tier.log.index import SEAL_BYTES, Seal, read_seal
from hot_tier.log.proof import NotWhole, prove_segment

_log = structlog.get_logger()


class Swap:
    def __init__(self, directory: str, replaced: Sequence[int]) -> None:
        """`replaced` are the base offsets of the old segments; the new one starts with the first."""
        self._directory = directory
        self._replaced = replaced
        self._lock = threading.Lock()
        self.cancelled = False

    @property
    def replaced(self) -> Sequence[int]:
        return self._replaced

    def decide(self) -> None:
        with self._lock:
            if not self.cancelled:
                _rename(self._path(names.INDEX + names.CLEANED), self._path(names.SWAP))
                sync_directory(self._directory)

    def cancel(self) -> None:
        """The old segments stay. The loop may call this at any time before `exchange`."""
        with self._lock:
            self.cancelled = True
            _unlink(self._path(names.SWAP))
            remove_cleaned(self._directory, self._replaced[0])
            sync_directory(self._directory)

    def exchange(self) -> None:
        _exchange(self._directory, self._replaced)

    def settle(self) -> None:
        _settle(self._directory, self._replaced)

    def _path(self, suffix: str) -> str:
        return os.path.join(self._directory, names.offset_file(self._replaced[0], suffix))


def remove_cleaned(directory: str, base_offset: int) -> None:
    for suffix in (names.INDEX, names.TIME_INDEX, names.LOG):
        _unlink(os.path.join(directory, names.offset_file(base_offset, suffix + names.CLEANED)))


def finish_swaps(directory: str) -> bool:
    """Completes every swap that was decided before a crash. Returns whether there was one."""
    files = [file for name in os.listdir(directory) if (file := names.parse_offset_file(name)) is not None]
    swaps = [file.offset for file in files if file.suffix == names.SWAP]
    for base_offset in swaps:
        with open(os.path.join(directory, names.offset_file(base_offset, names.SWAP)), "rb") as swap:
            seal = read_seal(swap.read(SEAL_BYTES))
        if seal is None:
            _log.error("swap file damaged", directory=directory, base_offset=base_offset)
            continue
        if not _may_begin(directory, seal):
            _log.error("compacted segment damaged, the old ones stay", directory=directory, base_offset=base_offset)
            Swap(directory, [base_offset]).cancel()
            continue
        inside = sorted({file.offset for file in files if base_offset < file.offset < seal.end_offset})
        _exchange(directory, [base_offset, *inside])
        _settle(directory, [base_offset, *inside])
    return bool(swaps)


def _may_begin(directory: str, seal: Seal) -> bool:
    """Returns False if the old segments are all there and the new one is not whole. An exchange begins with the index
    of the first old segment."""
    stem = os.path.join(directory, names.offset_file(seal.base_offset, ""))
    if os.path.exists(stem + names.INDEX):
        try:
            prove_segment(stem + names.LOG + names.CLEANED, seal.contents)
        except NotWhole:
            return False
    return True


def _exchange(directory: str, replaced: Sequence[int]) -> None:
    fresh = os.path.join(directory, names.offset_file(replaced[0], names.LOG + names.CLEANED))
    if not os.path.exists(fresh):
        return
    for offset in replaced:
        stem = os.path.join(directory, names.offset_file(offset, ""))
        for suffix in (names.INDEX, names.TIME_INDEX, names.ABORTED):
            _unlink(stem + suffix)
        if offset != replaced[0]:
            _unlink(stem + names.PRODUCERS)
        _rename(stem + names.LOG, stem + names.LOG + names.DELETED)
    os.rename(fresh, os.path.join(directory, names.offset_file(replaced[0], names.LOG)))


def _settle(directory: str, replaced: Sequence[int]) -> None:
    sync_directory(directory)
    stem = os.path.join(directory, names.offset_file(replaced[0], ""))
    _rename(stem + names.TIME_INDEX + names.CLEANED, stem + names.TIME_INDEX)
    _rename(stem + names.SWAP, stem + names.INDEX)
    sync_directory(directory)
    for offset in replaced:
        remove(os.path.join(directory, names.offset_file(offset, names.LOG + names.DELETED)))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _rename(old: str, new: str) -> None:
    try:
        os.rename(old, new)
    except FileNotFoundError:
        pass
