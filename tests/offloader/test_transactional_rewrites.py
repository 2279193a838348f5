"""What is aside when segments are rewritten or encrypted."""

import dataclasses
from pathlib import Path

import pytest

from cold_tier import proposals
from cold_tier.checking.segment_check import check_segment
from cold_tier.errors import CorruptObject, KeyMissing, NotEncrypted, ReplacementRefused
from cold_tier.format.encryption import Demand
from cold_tier.keys import file as key_file
from cold_tier.manifest.replacement import Proposal, Replacement, judge
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.rewrite import Rewrite, rewrite
from tests.offloader.transactional_log import LAYOUT, START_MS, Bucketed, End, Log, Write, bucketed

STEPS = [Write(-1, 3), Write(0, 2), Write(1, 2), End(0, False), Write(-1, 2), Write(1, 3), End(1, True), Write(2, 4)]
MASTER = "orders/1"


@pytest.fixture
def keys_file(tmp_path: Path) -> str:
    path = str(tmp_path / "keys.json")
    key_file.new_key(path, "orders")
    key_file.new_key(path, "others")
    return path


def settings_of(folder: Path, keys_file: str = "") -> StoreSettings:
    return StoreSettings(bucket=f"file://{folder}/bucket", keys_file=keys_file)


async def made(folder: Path, log: Log, cuts: list[int], keys_file: str = "", **job) -> Bucketed:
    (folder / "bucket").mkdir(exist_ok=True)
    return await bucketed(folder, log, cuts, store=open_store(settings_of(folder, keys_file)), **job)


async def put_in_place(bucket: Bucketed, old: tuple, new) -> None:
    """As the leader does it."""
    replacement = Replacement(tuple(each.name for each in old), (new,))
    proposal = Proposal(LAYOUT, START_MS, (replacement,))
    await proposals.examine(bucket.store, bucket.manifest, proposal, by_key=False)
    await bucket.writer.replace([replacement], START_MS)


@pytest.mark.parametrize("master", ["", MASTER], ids=["plain", "encrypted"])
async def test_a_merge_merges_what_is_aside(master: str, tmp_path: Path, keys_file: str) -> None:
    log = Log.of(STEPS)
    bucket = await made(tmp_path, log, [2, 4, 6], keys_file, master_key=master)
    old = bucket.segments
    assert len([each for each in old if each.aside]) > 1
    new = rewrite(settings_of(tmp_path, keys_file), Rewrite(LAYOUT, old, 1, None, master))
    assert new.aside is not None and new.aside.batches == sum(each.aside.batches for each in old if each.aside)
    assert new.aside.max_timestamp_ms == max(each.aside_max_timestamp_ms for each in old)
    await put_in_place(bucket, old, new)
    assert await bucket.records(committed=True) == log.committed
    assert await bucket.records(committed=False) == log.everything
    removed = {gone.key for gone in bucket.writer.current.removed}
    assert removed == {key for each in old for key in each.objects(LAYOUT)}
    assert not (await check_segment(bucket.store, LAYOUT, new)).findings


async def test_a_rewrite_by_key_lets_what_is_aside_go(tmp_path: Path) -> None:
    import numpy as np

    log = Log.of(STEPS)
    bucket = await made(tmp_path, log, [3])
    old = bucket.segments
    kept = [record.offset for record in log.committed][1::2]
    new = rewrite(settings_of(tmp_path), Rewrite(LAYOUT, old, 1, START_MS), np.array(kept, np.int64))
    assert new.aside is None and new.rows == len(kept)
    replacement = Replacement(tuple(each.name for each in old), (new,))
    assert judge(replacement, old, by_key=True) == []
    assert any("batches aside" in problem for problem in judge(replacement, old, by_key=False))
    await bucket.writer.replace([replacement], START_MS)
    for committed in (True, False):
        assert [r.offset for r in await bucket.records(committed=committed)] == kept


async def test_damage_aside_does_not_get_into_a_merge(tmp_path: Path) -> None:
    bucket = await made(tmp_path, Log.of(STEPS), [4])
    key = LAYOUT.aside(bucket.segments[0].name)
    path = tmp_path / "bucket" / key
    data = bytearray(path.read_bytes())
    data[70] ^= 4
    path.write_bytes(data)
    with pytest.raises(CorruptObject, match="aside"):
        rewrite(settings_of(tmp_path), Rewrite(LAYOUT, bucket.segments))
    checked = await check_segment(bucket.store, LAYOUT, bucket.segments[0])
    assert [(each.kind, each.where.endswith(key)) for each in checked.findings] == [("damaged", True)]


@pytest.mark.parametrize("harm", ["gone", "cut", "of another segment", "other bytes"])
async def test_a_proposal_with_something_else_aside_is_refused(harm: str, tmp_path: Path) -> None:
    bucket = await made(tmp_path, Log.of(STEPS), [2, 4])
    old = bucket.segments
    new = rewrite(settings_of(tmp_path), Rewrite(LAYOUT, old))
    path = tmp_path / "bucket" / LAYOUT.aside(new.name)
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif harm == "of another segment":
        other = next(each for each in old if each.aside)
        path.write_bytes((tmp_path / "bucket" / LAYOUT.aside(other.name)).read_bytes())
    else:
        path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(ReplacementRefused):
        await put_in_place(bucket, old, new)


async def test_what_is_aside_is_as_secret_as_the_rows(tmp_path: Path, keys_file: str) -> None:
    log = Log.of(STEPS)
    bucket = await made(tmp_path, log, [4], keys_file, master_key=MASTER)
    assert await bucket.records(committed=False) == log.everything
    for path in (tmp_path / "bucket").rglob("*"):
        assert not path.is_file() or b"value-" not in path.read_bytes()
    [first, *_] = bucket.segments
    keyless = Bucketed(open_store(settings_of(tmp_path)), bucket.writer)
    with pytest.raises(KeyMissing, match=MASTER):
        await keyless.records(committed=False)
    assert not (await check_segment(keyless.store, LAYOUT, first)).findings, "its bytes can be checked"
    key_file.shred_key(keys_file, "orders", START_MS)
    shredded = Bucketed(open_store(settings_of(tmp_path, keys_file)), bucket.writer)
    with pytest.raises(KeyMissing, match="destroyed"):
        await shredded.records(committed=False)


async def test_an_encrypted_portion_in_another_place_is_refused(tmp_path: Path, keys_file: str) -> None:
    """Two segments with the same numbers: only the name of the object tells them apart."""
    log = Log.of([Write(0, 2), End(0, False)])
    bucket = await made(tmp_path, log, [], keys_file, master_key=MASTER)
    [segment] = bucket.segments
    moved = dataclasses.replace(segment.name, uuid="ab" * 16)
    for key, other in zip(LAYOUT.objects(segment.name), LAYOUT.objects(moved), strict=True):
        await bucket.store.put(other, bytes(await bucket.store.get(key)))
    copied = dataclasses.replace(segment, name=moved)
    checked = await check_segment(bucket.store, LAYOUT, copied)
    assert any("encrypted here" in each.what for each in checked.findings)


async def test_a_plain_object_aside_in_the_place_of_an_encrypted_one_is_refused(tmp_path: Path, keys_file: str) -> None:
    log = Log.of([Write(0, 2), End(0, False)])
    bucket = await made(tmp_path, log, [], keys_file)
    [plain] = bucket.segments
    assert plain.rows == 0
    demand = Demand(0, ("orders",))
    assert not demand.met_by(plain), "it has no rows, and yet it has records"
    with pytest.raises(NotEncrypted):
        demand.check(plain, "here")
    lying = dataclasses.replace(plain, master_key=MASTER)
    with pytest.raises(NotEncrypted):
        await Bucketed(bucket.store, _Saying(lying, bucket.writer)).records(committed=False)


class _Saying:
    """A manifest that says that a plain segment is encrypted."""

    def __init__(self, segment, writer) -> None:
        self.current = dataclasses.replace(writer.current, tail=(segment,))
