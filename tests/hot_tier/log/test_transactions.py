"""Transactions of a log: who may begin and end one, what is decided when, and what is left after every kind of cut."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hot_tier.errors import (
    CorruptBatch,
    CorruptLog,
    DiskFull,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionCoordinatorFenced,
)
from hot_tier.ids import Offset
from hot_tier.log import names
from hot_tier.log.aborted_files import read_aborted, write_aborted
from hot_tier.log.compaction.compactor import Compactor
from hot_tier.log.config import TopicConfig
from hot_tier.log.index import read_seal
from hot_tier.log.mending import proved_again
from hot_tier.log.partition_log import Appended, PartitionLog
from hot_tier.log.producer_snapshots import newest_snapshot
from hot_tier.log.producers import read_producers
from hot_tier.log.transactions import Aborted, AbortedIndex, Hidden
from hot_tier.log.visibility import aborted_among, without_aborted
from hot_tier.record.batch import iter_headers, read_header, set_max_timestamp
from hot_tier.record.control import Marker, MarkerKind, encode_marker
from hot_tier.record.records import decode_records
from tests.hot_tier.log.support import NOW, append, batch, open_log, read_all, read_bytes, release, reopen_after_kill

SMALL = TopicConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1)
COMPACT = replace(SMALL, cleanup_policy=frozenset({"compact"}), delete_retention_ms=1000)
TV1, TV2 = 1, 2


@pytest.fixture
def killed(tmp_path: Path) -> PartitionLog:
    """For tests that open it again, and release that one."""
    return open_log(tmp_path, SMALL)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    log = open_log(tmp_path, SMALL)
    yield log
    release(log)


def write(
    log: PartitionLog,
    producer: int,
    *values: bytes | tuple[bytes | None, bytes | None],
    sequence: int | None = None,
    epoch: int = 0,
    transactional: bool = True,
) -> Appended:
    """Goes on with the producer's sequence and transaction; a new transaction is verified."""
    if sequence is None:
        known = {each.producer_id: each for each in log.producers.describe()}.get(producer)
        sequence = known.last_sequence + 1 if known is not None and known.epoch == epoch else 0
    data = batch(
        *(values or (b"value",)), producer=producer, epoch=epoch, sequence=sequence, transactional=transactional
    )
    header = read_header(data)
    verification = log.producers.begin_verification(header, f"id-{producer}") if transactional else None
    return log.append(data, header, max(0, log.leader_epoch), NOW, verification)


def mark(
    log: PartitionLog, producer: int, kind: MarkerKind, *, epoch: int = 0, coordinator: int = 0, version: int = TV1
) -> Appended:
    marker = Marker(kind, coordinator)
    return log.append_marker(producer, epoch, marker, max(0, log.leader_epoch), NOW, version)


def commit(log: PartitionLog, producer: int, **options: int) -> Appended:
    return mark(log, producer, MarkerKind.COMMIT, **options)


def abort(log: PartitionLog, producer: int, **options: int) -> Appended:
    return mark(log, producer, MarkerKind.ABORT, **options)


def all_committed(log: PartitionLog) -> None:
    log.commit(log.log_end_offset)


# Who may begin and end a transaction


def test_a_batch_begins_a_transaction_only_with_a_verification(log: PartitionLog) -> None:
    data = batch(b"a", producer=1, epoch=0, sequence=0, transactional=True)
    header = read_header(data)
    with pytest.raises(InvalidTransactionState):
        log.append(data, header, 0, NOW)
    verification = log.producers.begin_verification(header, "pay")
    log.append(data, header, 0, NOW, verification)
    (found,) = log.producers.open_transactions()
    assert found == (1, 0, 0, NOW, NOW, "pay")
    assert log.producers.begin_verification(header, "pay") is None
    assert log.log_end_offset == 1


def test_a_marker_makes_a_verification_void(log: PartitionLog) -> None:
    """The coordinator may have answered for the transaction that this marker ends: the batch must not join the next."""
    write(log, 1)
    abort(log, 1)
    late = batch(b"late", producer=1, epoch=0, sequence=1, transactional=True)
    verification = log.producers.begin_verification(read_header(late), "pay")
    assert verification is not None
    commit(log, 1)
    with pytest.raises(InvalidTransactionState):
        log.append(late, read_header(late), 0, NOW, verification)
    assert log.log_end_offset == 3


def test_batches_that_wait_for_one_verification_stay_in_order(log: PartitionLog) -> None:
    first, second = (batch(b"x", producer=1, epoch=0, sequence=sequence, transactional=True) for sequence in (0, 1))
    one = log.producers.begin_verification(read_header(first), "pay")
    assert log.producers.begin_verification(read_header(second), "pay") is one
    with pytest.raises(OutOfOrderSequence):
        log.append(second, read_header(second), 0, NOW, one)
    log.append(first, read_header(first), 0, NOW, one)
    log.append(second, read_header(second), 0, NOW, one)


def test_a_verification_is_of_one_producer_and_epoch(log: PartitionLog) -> None:
    mine = batch(b"x", producer=1, epoch=0, sequence=0, transactional=True)
    for other in (
        batch(b"x", producer=2, epoch=0, sequence=0, transactional=True),
        batch(b"x", producer=1, epoch=1, sequence=0, transactional=True),
    ):
        verification = log.producers.begin_verification(read_header(mine), "pay")
        with pytest.raises(InvalidTransactionState):
            log.append(other, read_header(other), 0, NOW, verification)


def test_with_an_epoch_per_transaction_an_unknown_producer_begins_at_sequence_0(log: PartitionLog) -> None:
    data = batch(b"x", producer=1, epoch=3, sequence=5, transactional=True)
    header = read_header(data)
    verification = log.producers.begin_verification(header, "pay", tv2=True)
    with pytest.raises(OutOfOrderSequence):
        log.append(data, header, 0, NOW, verification)
    del verification
    verification = log.producers.begin_verification(header, "pay")
    assert log.append(data, header, 0, NOW, verification).base_offset == 0


@pytest.mark.parametrize("kind", MarkerKind)
def test_a_batch_with_the_sequence_of_a_transaction_that_is_over_is_not_stored(log: PartitionLog, kind) -> None:
    """Neither is it surely a repeated one, nor surely a new one."""
    write(log, 1, b"a")
    mark(log, 1, kind)
    again = batch(b"b", producer=1, epoch=0, sequence=0, transactional=True)
    verification = log.producers.begin_verification(read_header(again), "pay")
    with pytest.raises(OutOfOrderSequence):
        log.append(again, read_header(again), 0, NOW, verification)
    assert log.log_end_offset == 2


def test_a_batch_repeats_one_of_its_own_open_transaction(log: PartitionLog) -> None:
    write(log, 1, b"a")
    again = batch(b"a", producer=1, epoch=0, sequence=0, transactional=True)
    assert log.producers.begin_verification(read_header(again), "pay") is None
    assert log.append(again, read_header(again), 0, NOW) == (0, 1, -1, True)


def test_a_batch_of_a_transaction_repeats_none_from_before_it(log: PartitionLog) -> None:
    write(log, 1, b"plain", transactional=False)
    write(log, 1, b"a")
    again = batch(b"b", producer=1, epoch=0, sequence=0, transactional=True)
    with pytest.raises(OutOfOrderSequence):
        log.append(again, read_header(again), 0, NOW)


def test_a_producer_writes_nothing_outside_of_its_open_transaction(log: PartitionLog) -> None:
    write(log, 1)
    with pytest.raises(InvalidTransactionState):
        write(log, 1, transactional=False)
    with pytest.raises(InvalidTransactionState):
        write(log, 1, epoch=1)
    commit(log, 1)
    write(log, 1, transactional=False)
    assert log.log_end_offset == 3


def test_a_marker_needs_a_later_epoch_where_each_transaction_has_its_own(log: PartitionLog) -> None:
    write(log, 1, epoch=4)
    with pytest.raises(ProducerFenced):
        commit(log, 1, epoch=4, version=TV2)
    with pytest.raises(ProducerFenced):
        commit(log, 1, epoch=3)
    assert log.log_end_offset == 1
    commit(log, 1, epoch=5, version=TV2)
    assert commit(log, 1, epoch=5, version=TV2).base_offset == 2, "a marker may come again"
    with pytest.raises(ProducerFenced):
        write(log, 1, epoch=4, sequence=1)
    with pytest.raises(OutOfOrderSequence):
        write(log, 1, epoch=5, sequence=1)
    write(log, 1, epoch=5, sequence=0)


def test_a_coordinator_that_was_replaced_writes_no_marker(log: PartitionLog) -> None:
    write(log, 1)
    commit(log, 1, coordinator=7)
    with pytest.raises(TransactionCoordinatorFenced):
        abort(log, 1, coordinator=6)
    commit(log, 1, coordinator=7)
    (view,) = log.producers.describe()
    assert (view.coordinator_epoch, view.transaction_start_offset) == (7, -1)


def test_a_full_disk_takes_markers_and_nothing_else(log: PartitionLog) -> None:
    write(log, 1)
    log._disk.full = True
    log._disk.free_bytes = 0
    with pytest.raises(DiskFull):
        write(log, 1)
    assert abort(log, 1).base_offset == 1


def test_a_producer_with_an_open_transaction_is_not_forgotten(log: PartitionLog) -> None:
    write(log, 1)
    write(log, 2, transactional=False)
    assert log.producers.expire(NOW + 10_000, 10_000, 10_000) == 1
    assert [each.producer_id for each in log.producers.open_transactions()] == [1]
    commit(log, 1)
    assert log.producers.expire(NOW + 10_000, 10_000, 10_000) == 1


def test_a_follower_takes_no_control_batch_that_is_no_marker(log: PartitionLog) -> None:
    good = encode_marker(1, 0, Marker(MarkerKind.COMMIT, 0), NOW)
    bad = batch(b"x", producer=1, epoch=0, sequence=0, transactional=True)
    bad[22] |= 0x20
    set_max_timestamp(bad, read_header(bad), NOW)
    with pytest.raises(CorruptBatch):
        log.append_replica(memoryview(bad), 0, NOW)
    assert log.log_end_offset == 0
    log.append_replica(memoryview(good), 0, NOW)
    assert log.log_end_offset == 1


# What is decided


def test_a_transaction_is_decided_when_its_marker_is_committed(log: PartitionLog) -> None:
    write(log, 1)
    write(log, 2)
    all_committed(log)
    assert log.first_unstable_offset == 0
    commit(log, 1)
    assert log.first_unstable_offset == 0, "the marker is above the high watermark"
    log.commit(Offset(2))
    assert log.first_unstable_offset == 0
    log.commit(Offset(3))
    assert log.first_unstable_offset == 1
    abort(log, 2)
    all_committed(log)
    assert log.first_unstable_offset is None


def test_an_ended_transaction_inside_another_does_not_hide_it(log: PartitionLog) -> None:
    write(log, 1)
    write(log, 2)
    commit(log, 2)
    commit(log, 1)
    log.commit(Offset(3))
    assert log.first_unstable_offset == 0


def test_what_is_not_committed_is_still_undecided_after_a_restart(killed: PartitionLog) -> None:
    write(killed, 1)
    killed.commit(Offset(1))
    commit(killed, 1)
    killed.roll(NOW)
    again, _ = reopen_after_kill(killed)
    again.commit(Offset(1))
    assert again.first_unstable_offset == 0, "its marker may be gone with the leader"
    again.commit(Offset(2))
    assert again.first_unstable_offset is None
    release(again)


def test_the_cut_of_a_marker_opens_the_transaction_again(log: PartitionLog) -> None:
    write(log, 1, b"a")
    write(log, 1, b"b")
    abort(log, 1)
    write(log, 2)
    log.truncate_to(2, NOW)
    assert [each[:3] for each in log.producers.open_transactions()] == [(1, 0, 0)]
    assert (len(log.aborted), log.first_unstable_offset) == (0, 0)
    log.truncate_to(1, NOW)
    assert log.first_unstable_offset == 0
    log.truncate_to(0, NOW)
    assert log.first_unstable_offset is None


def test_a_torn_tail_right_after_a_marker_costs_only_the_tail(killed: PartitionLog) -> None:
    write(killed, 1)
    abort(killed, 1)
    path = killed.segments()[-1].path
    with open(path, "ab") as file:
        file.write(bytes(batch(b"torn", producer=1, epoch=0, sequence=1, transactional=True))[:-1])
    again, recovered = reopen_after_kill(killed)
    assert recovered.cut_bytes > 0
    assert list(again.aborted) == [(1, 0, 1, 2)]
    assert list(again.producers.open_transactions()) == []
    release(again)


def test_a_torn_marker_leaves_its_transaction_open(killed: PartitionLog) -> None:
    write(killed, 1)
    size = killed.segments()[-1].size
    abort(killed, 1)
    os.truncate(killed.segments()[-1].path, size + 60)
    again, _ = reopen_after_kill(killed)
    assert again.log_end_offset == 1
    assert [each.first_offset for each in again.producers.open_transactions()] == [0]
    assert abort(again, 1).base_offset == 1
    release(again)


def test_deleted_records_of_an_open_transaction(log: PartitionLog) -> None:
    write(log, 1, b"x" * 300)
    write(log, 1, b"y" * 300)
    all_committed(log)
    log.delete_records_before(1)
    assert log.apply_retention(NOW) == 0, "its first segment stays until it is decided"
    abort(log, 1)
    all_committed(log)
    log.flush()
    assert log.apply_retention(NOW) == 1
    assert log.aborted.overlapping(1, 3) == [(1, 0, 2, 3)]


def test_retention_waits_for_the_end_of_a_transaction(log: PartitionLog) -> None:
    write(log, 1, b"x" * 300)
    write(log, 2, b"y" * 300, transactional=False)
    write(log, 2, b"z" * 300, transactional=False)
    all_committed(log)
    log.flush()
    log.set_config(replace(SMALL, retention_bytes=0))
    assert log.apply_retention(NOW) == 0
    commit(log, 1)
    all_committed(log)
    assert log.apply_retention(NOW) >= 2


# What was aborted


def test_dropped_segments_take_their_aborted_transactions_with_them(log: PartitionLog) -> None:
    for _ in range(6):
        write(log, 1, b"x" * 150)
        abort(log, 1)
    all_committed(log)
    log.flush()
    files = sorted(name for name in os.listdir(log.directory) if name.endswith(names.ABORTED))
    assert len(files) == log.segment_count - 1 > 2
    second = log.segments()[1].base_offset
    log.drop_local_before(second, NOW)
    assert [each.last_offset for each in log.aborted] == [offset for offset in (1, 3, 5, 7, 9, 11) if offset >= second]
    assert not os.path.exists(os.path.join(log.directory, files[0]))


@pytest.mark.parametrize("harmed", ["missing", "torn", "flipped", "of another segment"])
def test_a_harmed_file_is_made_again(killed: PartitionLog, harmed: str) -> None:
    write(killed, 2)
    for _ in range(3):
        write(killed, 1, b"x" * 150)
        abort(killed, 1)
    abort(killed, 2)
    write(killed, 3, b"y" * 350)
    all_committed(killed)
    killed.flush()
    known = list(killed.aborted)
    assert len(known) == 4
    files = sorted(name for name in os.listdir(killed.directory) if name.endswith(names.ABORTED))
    first, second = (os.path.join(killed.directory, name) for name in files[:2])
    whole = Path(first).read_bytes()
    if harmed == "missing":
        os.unlink(first)
    elif harmed == "torn":
        os.truncate(first, 40)
    elif harmed == "flipped":
        Path(first).write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    else:
        shutil.copy(second, first)
    again, recovered = reopen_after_kill(killed)
    assert recovered.damaged == []
    assert list(again.aborted) == known
    assert Path(first).read_bytes() == whole
    release(again)


def test_a_damaged_segment_whose_file_is_lost_is_not_served_until_it_is_mended(killed: PartitionLog) -> None:
    for _ in range(3):
        write(killed, 1, b"x" * 100)
        abort(killed, 1)
    write(killed, 2, b"y" * 350)
    all_committed(killed)
    killed.flush()
    info = killed.sealed_segments()[0]
    stem = info.path.removesuffix(names.LOG)
    whole = Path(info.path).read_bytes()
    marker_at = next(position for position, header in iter_headers(whole) if header.is_control)
    Path(info.path).write_bytes(whole[: marker_at + 70] + bytes([whole[marker_at + 70] ^ 1]) + whole[marker_at + 71 :])
    os.unlink(stem + names.ABORTED)
    again, _ = reopen_after_kill(killed)
    with pytest.raises(CorruptLog):
        read_all(again, info.base_offset)
    Path(info.path).write_bytes(whole)
    with pytest.raises(CorruptLog):
        read_all(again, info.base_offset)
    again.commit(killed.log_end_offset)
    (damaged,) = again.damaged_segments()
    assert asyncio.run(proved_again(again, damaged))
    assert list(again.aborted) == list(killed.aborted)
    assert len(read_all(again, info.base_offset)) == 4
    release(again)


@pytest.mark.parametrize("where", ["in the middle", "at the end"])
def test_a_lost_marker_hides_its_transaction_also_from_the_next_one(killed: PartitionLog, where: str) -> None:
    """The file with the marker is gone. The next marker of the producer says nothing about the transaction before."""
    write(killed, 1, b"rolled back" * 10)
    killed.roll(NOW)
    lost = write(killed, 2, b"x" * 100).base_offset
    commit(killed, 2)
    abort(killed, 1)
    if where == "in the middle":
        killed.roll(NOW)
        write(killed, 3, b"y" * 100)
        commit(killed, 3)
    killed.flush()
    os.unlink(next(info.path for info in killed.segments() if info.base_offset == lost))
    again, recovered = reopen_after_kill(killed)
    assert recovered.damaged
    write(again, 1, b"committed", sequence=again.producers.next_sequence(1, 0))
    last = commit(again, 1).base_offset
    all_committed(again)
    assert again.first_unstable_offset is None
    with pytest.raises(CorruptLog):
        read_bytes(again, 0)
    assert [record.value for record in read_all(again, last - 1)] == [b"committed"]
    release(again)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["oldest first", "newest first"])
def test_what_a_lost_marker_hides_is_served_once_the_marker_is_back(
    killed: PartitionLog, order: tuple[int, int]
) -> None:
    for _ in range(2):  # The first transaction ends in the second segment, and the last one goes on there.
        write(killed, 1, b"rolled back" * 10)
    killed.roll(NOW)
    abort(killed, 1)
    write(killed, 1, b"committed" * 10)
    killed.roll(NOW)
    commit(killed, 1)
    killed.flush()
    info = killed.sealed_segments()[1]
    whole = Path(info.path).read_bytes()
    Path(info.path).write_bytes(whole[:70] + bytes([whole[70] ^ 1]) + whole[71:])
    os.unlink(info.path.removesuffix(names.LOG) + names.ABORTED)
    again, _ = reopen_after_kill(killed)
    assert [each.base_offset for each in again.damaged_segments()] == [0, info.base_offset]
    Path(info.path).write_bytes(whole)
    again.commit(again.log_end_offset)
    for _ in range(2):
        for at in order:
            for damaged in again.damaged_segments()[at : at + 1]:
                asyncio.run(proved_again(again, damaged))
    assert again.damaged_segments() == []
    assert list(again.aborted) == list(killed.aborted) != []
    assert again.first_unstable_offset is None
    seen = without_aborted(read_bytes(again, 0), aborted_among(again.aborted, read_bytes(again, 0)))
    assert {record.value for record in decode_records(seen)} <= {b"committed" * 10}
    release(again)


def test_a_hole_after_transactions_that_are_over_hides_nothing_else(killed: PartitionLog) -> None:
    write(killed, 1, b"committed" * 10)
    commit(killed, 1)
    killed.roll(NOW)
    lost = write(killed, 2, b"x" * 100).base_offset
    commit(killed, 2)
    killed.roll(NOW)
    write(killed, 3, b"y" * 100)
    commit(killed, 3)
    killed.flush()
    os.unlink(next(info.path for info in killed.segments() if info.base_offset == lost))
    again, _ = reopen_after_kill(killed)
    assert [record.value for record in decode_records(read_bytes(again, 0, end_offset=lost))] == [b"committed" * 10]
    with pytest.raises(CorruptLog):
        read_bytes(again, lost)
    release(again)


def test_entries_are_found_in_any_range_in_the_order_of_their_first_offsets() -> None:
    index = AbortedIndex([Aborted(1, 5, 10, 0), Aborted(2, 0, 12, 13), Aborted(1, 13, 15, 16)])
    assert [entry.first_offset for entry in index.overlapping(0, 100)] == [0, 5, 13]
    assert [entry.first_offset for entry in index.overlapping(11, 13)] == [0]
    assert [entry.first_offset for entry in index.overlapping(0, 3)] == [0]
    assert index.overlapping(16, 100) == []
    assert list(index.between(10, 13)) == list(index)[:2]
    assert list(index.between(0, 12).joined(index.between(12, 99))) == list(index)


def test_a_reader_is_not_told_of_a_transaction_whose_marker_it_will_not_meet(log: PartitionLog) -> None:
    """Compaction took both away between the look at the index and the read: what the producer wrote later stays."""
    write(log, 1, b"rolled back")
    abort(log, 1)
    write(log, 1, b"kept")
    commit(log, 1)
    data = memoryview(read_bytes(log, 0))
    sizes = [header.size for _, header in iter_headers(data)]
    assert aborted_among(log.aborted, data) == [(1, 0, 1, 2)]
    assert aborted_among(log.aborted, data[: sizes[0]]) == [(1, 0, 1, 2)], "the marker comes later"
    assert aborted_among(log.aborted, data[sizes[0] + sizes[1] :]) == []
    assert aborted_among(log.aborted, b"".join((data[: sizes[0]], data[sizes[0] + sizes[1] :]))) == []
    seen = decode_records(without_aborted(data, aborted_among(log.aborted, data)))
    assert [record.value for record in seen] == [b"kept"]


# Compaction


def compact(log: PartitionLog, now_ms: int = NOW) -> bool:
    with ThreadPoolExecutor(1) as threads:
        return asyncio.run(Compactor(threads, 1 << 20, lambda: now_ms).compact(log))


def test_compaction_leaves_out_what_was_aborted(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    write(log, 1, (b"a", b"old"))
    commit(log, 1)
    write(log, 1, (b"a", b"rolled back"), (b"b", b"rolled back"))
    abort(log, 1)
    write(log, 2, (b"c", b"open"))
    all_committed(log)
    log.roll(NOW)
    log.flush()
    assert not compact(log), "a transaction is open in the segment"
    commit(log, 2)
    log.roll(NOW)
    log.flush()
    all_committed(log)
    assert compact(log)
    data = read_bytes(log, 0)
    assert [(each.key, each.value) for each in decode_records(data)] == [(b"a", b"old"), (b"c", b"open")]
    assert [header.is_transactional for _, header in iter_headers(data) if not header.is_control] == [False] * 3
    assert aborted_among(log.aborted, data) == []
    again, recovered = reopen_after_kill(log)
    assert (recovered.damaged, list(again.producers.open_transactions()), len(again.aborted)) == ([], [], 0)
    assert again.append_marker(1, 0, Marker(MarkerKind.COMMIT, 0), 0, NOW, TV1).base_offset == 7
    assert append(again, batch(b"x", producer=2, epoch=0, sequence=0)).duplicate, "the last sequence is still known"
    release(again)


def test_markers_go_when_nobody_needs_them_any_more(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    write(log, 1, (b"a", b"value"))
    commit(log, 1)
    write(log, 2, (b"b", b"value"))
    commit(log, 2, epoch=1, version=TV2)
    log.roll(NOW)
    log.flush()
    all_committed(log)
    assert compact(log)
    assert sum(header.is_control for _, header in iter_headers(read_bytes(log, 0))) == 2
    write(log, 3, (b"c", b"value"), transactional=False)
    log.roll(NOW)
    log.flush()
    all_committed(log)
    assert compact(log, NOW + 2000)
    left = [header.producer_id for _, header in iter_headers(read_bytes(log, 0)) if header.is_control]
    assert left == [2], "its epoch is known from the marker alone"
    release(log)


# On the disk


def test_the_seal_says_that_there_is_a_file(log: PartitionLog) -> None:
    write(log, 1)
    abort(log, 1)
    log.roll(NOW)
    write(log, 1)
    commit(log, 1)
    log.roll(NOW)
    log.flush()
    paths = [each.path.removesuffix(names.LOG) + names.INDEX for each in log.segments()[:2]]
    seals = [read_seal(Path(path).read_bytes()) for path in paths]
    assert [seal is not None and seal.aborts for seal in seals] == [True, False]


def test_the_bytes_of_the_file_of_aborted_transactions() -> None:
    index = AbortedIndex([Aborted(4000, 5, 9, 7), Aborted(7, 7, 10, 11)])
    content = bytes.fromhex(
        "544c415401000000"  # magic, version 1
        "05000000000000000b00000000000000"  # offsets 5 to 11
        "02000000bcc1de84"  # two transactions, CRC-32C
        "a00f000000000000050000000000000009000000000000000700000000000000"
        "070000000000000007000000000000000a000000000000000b00000000000000"
    )
    assert write_aborted(index, 5, 11).hex() == content.hex()
    found = read_aborted(content, 5, 11)
    assert found is not None and list(found) == list(index)
    assert read_aborted(content, 5, 12) is None
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        assert read_aborted(bytes(flipped), 5, 11) is None
    for size in range(len(content)):
        assert read_aborted(content[:size], 5, 11) is None


def test_the_bytes_of_a_snapshot_with_open_transactions(log: PartitionLog) -> None:
    write(log, 1)
    write(log, 2, b"a", b"b", epoch=3)
    commit(log, 1, coordinator=9)
    content = log.producers.write(4)
    assert content == bytes.fromhex(
        "544c505302000000"  # magic, version 2
        "0400000000000000"  # as of offset 4
        "02000000718a9d12"  # two producers, CRC-32C
        "010000000000000000000100"  # 1, epoch 0, one batch
        "0068e5cf8b010000ffffffffffffffff09000000"  # wrote when, no transaction, coordinator epoch 9
        "000000000000000000000000000000000100000000000000"
        "020000000000000003000100"  # 2, epoch 3, one batch
        "0068e5cf8b0100000100000000000000ffffffff"  # wrote when, in a transaction since offset 1
        "0068e5cf8b010000040069642d32"  # begun when, "id-2"
        "000000000100000001000000000000000300000000000000"
        "01000000"  # one that ended and is not known to be committed
        "00000000000000000300000000000000"  # from offset 0, its marker at 3
    )
    found = read_producers(content)
    assert found is not None
    offset, state = found
    assert (offset, state.transactions.first_unstable) == (4, 0)
    assert list(state.open_transactions()) == list(log.producers.open_transactions())
    assert list(state.describe()) == list(log.producers.describe())
    state.transactions.committed(4)
    assert state.transactions.first_unstable == 1


def test_a_snapshot_without_open_transactions_is_one_of_version_1(log: PartitionLog) -> None:
    """A broker of 0.1.0 that follows during an upgrade reads it."""
    write(log, 1)
    commit(log, 1, coordinator=9)
    all_committed(log)
    assert log.producers.write(2)[4:6] == b"\x01\x00"
    log.roll(NOW)
    log.flush()
    assert newest_snapshot(log.directory, 2)[0] == 2


def test_hidden_batches_are_those_of_the_producer_and_the_range(log: PartitionLog) -> None:
    hidden = Hidden([Aborted(1, 5, 8, 9), Aborted(1, 12, 14, 15)])

    def is_hidden(producer: int, offset: int, transactional: bool = True) -> bool:
        data = batch(b"x", producer=producer, epoch=0, sequence=0, transactional=transactional)
        return read_header(data)._replace(base_offset=offset) in hidden

    assert [offset for offset in range(20) if is_hidden(1, offset)] == [5, 6, 7, 12, 13]
    assert not is_hidden(2, 5)
    assert not is_hidden(1, 5, transactional=False)
