"""Putting a compacted segment in the place of the ones it was made from, so that a crash leaves the old or the new.

    1. `<base>.log.cleaned`, `<base>.timeindex.cleaned` and `<base>.index.cleaned` are written and synced
    2. `<base>.index.cleaned` becomes `<base>.swap`: from here on the new segment counts
    3. the old index files go, `.log.cleaned` becomes `.log`, the other replaced segments go
    4. `.timeindex.cleaned` becomes `.timeindex`, `.swap` becomes `.index`

The swap file is the new segment's seal: it names the range that it replaces. A crash before step 2 leaves only
`.cleaned` files, which recovery removes; after it, `finish_swaps` does steps 3 and 4, each of which may have been
done already.
"""

import os
from collections.abc import Sequence

import structlog

from hot_tier.log import names
from hot_tier.log.files import sync_directory
from hot_tier.log.index import SEAL_BYTES, read_seal

_log = structlog.get_logger()


def commit_swap(directory: str, base_offset: int, replaced: Sequence[int]) -> None:
    """Steps 2 to 4. `replaced` are the base offsets of the old segments, the first is `base_offset`."""
    index = os.path.join(directory, names.offset_file(base_offset, names.INDEX + names.CLEANED))
    swap = os.path.join(directory, names.offset_file(base_offset, names.SWAP))
    os.rename(index, swap)
    sync_directory(directory)
    _finish(directory, base_offset, replaced[1:])


def finish_swaps(directory: str) -> bool:
    """Completes every swap that was decided before a crash; whether there was one."""
    files = [file for name in os.listdir(directory) if (file := names.parse_offset_file(name)) is not None]
    swaps = [file.offset for file in files if file.suffix == names.SWAP]
    for base_offset in swaps:
        with open(os.path.join(directory, names.offset_file(base_offset, names.SWAP)), "rb") as swap:
            seal = read_seal(swap.read(SEAL_BYTES))
        if seal is None:
            _log.error("swap file damaged", directory=directory, base_offset=base_offset)
            continue
        inside = sorted(
            file.offset for file in files if file.suffix == names.LOG and base_offset < file.offset < seal.end_offset
        )
        _finish(directory, base_offset, inside)
    return bool(swaps)


def _finish(directory: str, base_offset: int, others: Sequence[int]) -> None:
    def path(offset: int, suffix: str) -> str:
        return os.path.join(directory, names.offset_file(offset, suffix))

    for suffix in (names.INDEX, names.TIME_INDEX):
        _unlink(path(base_offset, suffix))
    _rename(path(base_offset, names.LOG + names.CLEANED), path(base_offset, names.LOG))
    for offset in others:
        for suffix in (names.INDEX, names.TIME_INDEX, names.PRODUCERS, names.LOG):
            _unlink(path(offset, suffix))
    _rename(path(base_offset, names.TIME_INDEX + names.CLEANED), path(base_offset, names.TIME_INDEX))
    sync_directory(directory)
    _rename(path(base_offset, names.SWAP), path(base_offset, names.INDEX))
    sync_directory(directory)


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
