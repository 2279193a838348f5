"""A node's metadata, and what its data directory says of itself: whoever reads them gets what was written, or an error.

`data-id` has no checksum, and may read as another name or number of uses: then nobody counts on what the directory
holds. Where the number is greater, it hides that a directory was put back, which would be a second harm.
"""

import shutil
from pathlib import Path
from uuid import UUID

from hot_tier.cluster.directory import IDENTITY_FILE, Identity, read_identity, write_identity
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import check_knows
from hot_tier.cluster.store import KeyValue, Put
from hot_tier.errors import TierlogError
from hot_tier.log.damaged_logs import Doubts
from hot_tier.log.names import IN_DOUBT
from tests.damage.harms import do
from tests.damage.model import Wrong
from tests.damage.one_log import target
from tests.damage.table import CLEAN, LIVE, Case

DATABASE = "metadata.db"
DAMAGED = {(UUID(int=7), 1), (UUID(int=8), 2)}
IDENTITY = Identity("5e" * 16, 12)


async def _put(store: SqliteStore, numbers: range) -> None:
    for number in numbers:
        value = b'{"name": "t%d", "more": "%s"}' % (number, b"v" * 90)
        await store.transact([], [Put(f"quotas/t{number % 50:03d}", value)])


async def _everything(store: SqliteStore) -> tuple[KeyValue, ...]:
    return (await store.range("")).items


async def _after_a_start(path: Path) -> tuple[KeyValue, ...]:
    store = SqliteStore(str(path))
    await store.open()
    try:
        await check_knows(store, str(path.parent), {})
        return await _everything(store)
    finally:
        await store.close()


async def _database(case: Case, data_dir: Path) -> str:
    older, path = data_dir.with_name("older"), data_dir / DATABASE
    store = SqliteStore(str(path))
    await store.open()
    await _put(store, range(60))
    shutil.copytree(data_dir, older)
    await _put(store, range(60, 90))
    right = await _everything(store)
    errors = 0
    try:
        if case.moment == CLEAN:
            await store.close()
        elif case.moment != LIVE:
            killed = data_dir.with_name("killed")
            shutil.copytree(data_dir, killed)
            await store.close()
            data_dir, path = killed, killed / DATABASE
        if not do(case.harm, target(case, data_dir, older)):
            return "nothing changed"
        if case.moment == LIVE:
            try:
                if await _everything(store) != right:
                    raise Wrong("read under a running node: something is missing or changed")
            except TierlogError:
                errors += 1
    finally:
        if case.moment == LIVE:
            try:
                await store.close()
            except TierlogError:
                errors += 1
    try:
        found = await _after_a_start(path)
    except TierlogError:
        return "refused"
    # A copy of some time ago is whole: that it is not the newest only a second place could know.
    rolled_back = case.harm == "rolled back" and found == await _after_a_start(older / DATABASE)
    if found != right and not rolled_back:
        raise Wrong("something is missing or changed, and nobody said so")
    return "errors" if errors else "right"


def _identity(case: Case, data_dir: Path) -> str:
    write_identity(str(data_dir), IDENTITY)
    if not do(case.harm, target(case, data_dir, data_dir / "none")):
        return "nothing changed"
    try:
        found = read_identity(str(data_dir))
    except TierlogError:
        return "refused"
    return "right" if found == IDENTITY else "errors"


def _doubts(case: Case, data_dir: Path) -> str:
    Doubts(str(data_dir)).note(cut=(), damaged=DAMAGED, emptied=())
    if not do(case.harm, target(case, data_dir, data_dir / "none")):
        return "nothing changed"
    try:
        if Doubts(str(data_dir)).damaged != DAMAGED:
            raise Wrong("logs that miss something are counted on")
    except TierlogError:
        return "refused"
    return "right"


async def run(case: Case, data_dir: Path) -> str:
    """What came of it: "right", "errors" or "refused" (it does not start)."""
    data_dir.mkdir()
    if case.file == IDENTITY_FILE:
        return _identity(case, data_dir)
    if case.file == IN_DOUBT:
        return _doubts(case, data_dir)
    return await _database(case, data_dir)
