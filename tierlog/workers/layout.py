"""Where workers keep their data, and the check that nobody starts empty beside data that is there.

    <home>/metadata.db, metadata.sock      cluster metadata, unless etcd has it; where the workers reach it
    <home>/bucket/                         the archive, unless --bucket names another place
    <any data dir>/worker-<node id>/       the data directory of one broker

The home is the first of the data directories. A worker stays where its directory is; a new one goes where the fewest
are. A directory serves one broker or workers, never both in turn: each would miss what the other holds.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from hot_tier.cluster.directory import IDENTITY_FILE
from hot_tier.cluster.open import METADATA_FILE
from hot_tier.errors import CorruptMetadata, SettingsError
from hot_tier.log import names

_WORKER: Final = re.compile(r"worker-(\d+)")


def worker_directory(data_dir: str, number: int) -> str:
    return os.path.join(data_dir, f"worker-{number}")


def workers_in(data_dir: str) -> list[int]:
    """Returns the numbers of the workers that keep their data here."""
    try:
        found = os.listdir(data_dir)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for match in map(_WORKER.fullmatch, found) if match)


def refuse_workers_home(data_dir: str) -> None:
    """Raises SettingsError if workers keep their data here. One broker would not see it."""
    found = workers_in(data_dir)
    if found:
        raise SettingsError(
            f"{len(found)} workers keep their data here",
            where=data_dir,
            hint=f"start with --workers {len(found)}, or name another directory with --data-dir",
        )


def check_home(data_dirs: Sequence[str], *, embedded: bool) -> None:
    """Raises what keeps workers from these directories. `embedded`: the home is to have the metadata."""
    home = data_dirs[0]
    for data_dir in data_dirs:
        for name in (names.LOGS, IDENTITY_FILE):
            if os.path.exists(os.path.join(data_dir, name)):
                raise SettingsError(
                    "one broker without workers keeps its data here, which workers would not see",
                    where=data_dir,
                    hint="serve it without --workers as before, or name another directory with --data-dir; "
                    "docs/WORKERS.md says how topics get from one to the other",
                )
    has_metadata = os.path.exists(os.path.join(home, METADATA_FILE))
    if has_metadata and not embedded:
        raise SettingsError(
            f"the workers of this directory keep their metadata in {METADATA_FILE}, not in etcd",
            where=home,
            hint="leave out --metadata, or name another directory with --data-dir",
        )
    if embedded and not has_metadata and any(workers_in(data_dir) for data_dir in data_dirs):
        raise CorruptMetadata(
            f"workers ran here before, and {METADATA_FILE} is not there",
            where=home,
            hint="name their etcd with --metadata if they had one; name the directory that has it first; or put it "
            "back from a copy of this directory",
        )


def place_workers(numbers: Collection[int], data_dirs: Sequence[str]) -> dict[int, str]:
    """Returns each worker's directory. Raises SettingsError if one that has data here would be left out."""
    return spread_workers(numbers, {data_dir: workers_in(data_dir) for data_dir in data_dirs})


def spread_workers(numbers: Collection[int], found: Mapping[str, Iterable[int]]) -> dict[int, str]:
    placed: dict[int, str] = {}
    for data_dir, there in found.items():
        for number in there:
            directory = worker_directory(data_dir, number)
            if number in placed:
                raise SettingsError(
                    f"worker {number} has two data directories",
                    where=f"{placed[number]}, {directory}",
                    hint="move the one away that is not in use",
                )
            if number not in numbers:
                raise SettingsError(
                    f"worker {number} has data here, and only the workers {_shown(numbers)} are to start",
                    where=directory,
                    hint="start as many as before, with the same --node-id; to have fewer, decommission it first "
                    f"(tierlog cluster decommission {number}), stop all, and move the directory away",
                )
            placed[number] = directory
    counts = {data_dir: sum(worker_directory(data_dir, n) == placed[n] for n in placed) for data_dir in found}
    for number in sorted(set(numbers) - set(placed)):
        emptiest = min(counts, key=lambda data_dir: counts[data_dir])
        counts[emptiest] += 1
        placed[number] = worker_directory(emptiest, number)
    return dict(sorted(placed.items()))


def _shown(numbers: Collection[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}" if len(numbers) > 1 else str(min(numbers))
