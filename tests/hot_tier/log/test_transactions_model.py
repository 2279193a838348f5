"""Transactions of a log against a model that derives everything anew from a list of batches."""

import os
import random
import shutil
import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hot_tier.errors import InvalidTransactionState, ProducerFenced
from hot_tier.ids import Offset
from hot_tier.log import names
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.state import read_clean_shutdown, write_clean_shutdown
from hot_tier.log.transactions import Hidden
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.control import Marker, MarkerKind
from tests.hot_tier.log.power_loss import PowerLoss
from tests.hot_tier.log.support import NOW, SETTINGS, TOPIC_ID, TP, batch, read_bytes, recover, release

CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1)
PRODUCERS = (1, 2, 3)


@dataclass(frozen=True)
class Stored:
    producer: int
    epoch: int
    base: int
    end: int
    transactional: bool
    marker: MarkerKind | None = None


@dataclass(frozen=True)
class Transaction:
    producer: int
    first: int
    marker: int | None
    aborted: bool


class TransactionMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.data_dir = os.path.join(self.directory, "0")
        os.mkdir(self.data_dir)
        self.patch = pytest.MonkeyPatch()
        self.disk = PowerLoss(self.data_dir, self.patch)
        self.log = PartitionLog(Disk(self.data_dir, SETTINGS), TP, TOPIC_ID, CONFIG)
        self.stored: list[Stored] = []
        self.high_watermark = 0
        self.generation = 0
        self.exact = True
        """No snapshot of producers was harmed: first offsets below the local log are known."""
        self.commit(0)

    def teardown(self) -> None:
        release(self.log)
        self.disk.close()
        self.patch.undo()
        shutil.rmtree(self.directory)

    # The model

    @property
    def end(self) -> int:
        return self.stored[-1].end if self.stored else 0

    def epoch_of(self, producer: int) -> int:
        return next((each.epoch for each in reversed(self.stored) if each.producer == producer), 0)

    def transactions(self) -> list[Transaction]:
        found: list[Transaction] = []
        begun: dict[int, int] = {}
        for each in self.stored:
            if each.marker is not None:
                first = begun.pop(each.producer, None)
                if first is not None:
                    found.append(Transaction(each.producer, first, each.base, each.marker is MarkerKind.ABORT))
            elif each.transactional:
                begun.setdefault(each.producer, each.base)
        return found + [Transaction(producer, first, None, False) for producer, first in begun.items()]

    def is_open(self, producer: int) -> bool:
        return any(each.producer == producer and each.marker is None for each in self.transactions())

    def first_unstable(self) -> int | None:
        undecided = (
            each.first for each in self.transactions() if each.marker is None or each.marker >= self.high_watermark
        )
        return min(undecided, default=None)

    # What happens

    @rule(steps=st.lists(st.tuples(st.sampled_from(PRODUCERS), st.integers(0, 6)), min_size=1, max_size=15))
    def work(self, steps: list[tuple[int, int]]) -> None:
        for producer, step in steps:
            if step < 4:
                self.append(producer, 1 + step % 3, 30 * step, transactional=True)
            else:
                self.mark(producer, MarkerKind.COMMIT if step == 4 else MarkerKind.ABORT, bump=step == 6)

    @rule(producer=st.sampled_from(PRODUCERS), records=st.integers(1, 3))
    def write_outside(self, producer: int, records: int) -> None:
        if self.is_open(producer):
            with pytest.raises(InvalidTransactionState):
                self.append(producer, records, 5, transactional=False)
        else:
            self.append(producer, records, 5, transactional=False)

    def append(self, producer: int, records: int, size: int, *, transactional: bool) -> None:
        epoch = self.epoch_of(producer)
        known = {each.producer_id: each for each in self.log.producers.describe()}.get(producer)
        sequence = known.last_sequence + 1 if known is not None and known.epoch == epoch else 0
        values = [os.urandom(size) for _ in range(records)]
        data = batch(*values, producer=producer, epoch=epoch, sequence=sequence, transactional=transactional)
        header = read_header(data)
        verification = None
        if transactional:
            verification = self.log.producers.begin_verification(header, f"id-{producer}")
            assert (verification is None) == self.is_open(producer)
            if verification is not None:
                with pytest.raises(InvalidTransactionState):
                    self.log.append(data, header, 0, NOW)
        appended = self.log.append(data, header, 0, NOW, verification)
        assert appended == (self.end, self.end + records, -1, False)
        self.stored.append(Stored(producer, epoch, self.end, self.end + records, transactional))

    def mark(self, producer: int, kind: MarkerKind, bump: bool) -> None:
        epoch = self.epoch_of(producer) + bump
        self.log.append_marker(producer, epoch, Marker(kind, 0), 0, NOW, 2 if bump else 1)
        self.stored.append(Stored(producer, epoch, self.end, self.end + 1, True, kind))

    @rule(producer=st.sampled_from(PRODUCERS))
    def mark_at_the_epoch_of_the_transaction(self, producer: int) -> None:
        if self.is_open(producer):
            with pytest.raises(ProducerFenced):
                self.log.append_marker(producer, self.epoch_of(producer), Marker(MarkerKind.COMMIT, 0), 0, NOW, 2)

    @rule(data=st.data())
    def move_the_high_watermark(self, data: st.DataObject) -> None:
        self.commit(data.draw(st.integers(self.high_watermark, self.end)))

    @rule(part=st.sampled_from([0.2, 0.7, 1]))
    def commit_a_part(self, part: float) -> None:
        self.commit(self.high_watermark + int(part * (self.end - self.high_watermark)))

    def commit(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.log.commit(Offset(high_watermark))

    @rule()
    def roll(self) -> None:
        if self.log.segment_count:
            self.log.roll(NOW)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        if self.high_watermark:
            self.log.delete_records_before(data.draw(st.integers(0, self.high_watermark)))

    @rule(kept=st.integers(0, 3_000))
    def retain_by_size(self, kept: int) -> None:
        fields = {field: getattr(CONFIG, field) for field in CONFIG.__dataclass_fields__}
        self.log.set_config(TopicConfig(**{**fields, "retention_bytes": kept}))
        self.log.apply_retention(NOW)
        self.log.set_config(CONFIG)
        unstable = self.first_unstable()
        assert unstable is None or self.log.local_log_start_offset <= max(unstable, self.log.log_start_offset)

    @precondition(lambda self: self.end > self.high_watermark)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        start = max(self.high_watermark, self.log.segments()[0].base_offset)
        offset = data.draw(st.integers(start, self.end))
        self.log.truncate_to(offset, NOW)
        self.cut()

    def cut(self) -> None:
        self.stored = [each for each in self.stored if each.end <= self.log.log_end_offset]
        assert self.log.log_end_offset == self.end or not self.stored
        self.high_watermark = min(self.high_watermark, self.end)

    @rule()
    def stop_cleanly(self) -> None:
        self.log.flush()
        state = self.log.state()
        if not state.segments:
            return
        content = write_clean_shutdown({(TOPIC_ID, 0): state}, self.log._disk.logs_directory)
        release(self.log)
        disk = Disk(self.data_dir, SETTINGS)
        states = read_clean_shutdown(content, disk.logs_directory, disk.files)
        assert states is not None
        self.log = PartitionLog(disk, TP, TOPIC_ID, CONFIG, states[TOPIC_ID, 0])
        self.commit(self.high_watermark)

    @rule()
    def kill(self) -> None:
        release(self.log)
        self.log, recovered = recover(self.data_dir, self.log.directory, CONFIG)
        assert (recovered.damaged, recovered.cut_bytes) == ([], 0)
        self.commit(self.high_watermark)

    @rule(data=st.data(), suffix=st.sampled_from([names.ABORTED, names.PRODUCERS]), how=st.integers(0, 2))
    def harm_a_file_and_kill(self, data: st.DataObject, suffix: str, how: int) -> None:
        self.log.flush()
        if os.path.exists(self.log.directory):
            found = sorted(name for name in os.listdir(self.log.directory) if name.endswith(suffix))
            if found:
                path = os.path.join(self.log.directory, data.draw(st.sampled_from(found)))
                harm(path, how)
                self.exact &= suffix != names.PRODUCERS
        self.kill()

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        self.generation += 1
        crashed = os.path.join(self.directory, str(self.generation))
        self.disk.crash(crashed, random.Random(seed))
        directory = self.log.directory.replace(self.data_dir, crashed)
        release(self.log)
        self.disk.close()
        self.patch.undo()
        self.data_dir = crashed
        self.disk = PowerLoss(crashed, self.patch)
        self.disk.all_is_synced()
        self.log, recovered = recover(crashed, directory, CONFIG)
        assert recovered.damaged == []
        self.cut()
        self.commit(self.high_watermark)

    # What it must answer

    @invariant()
    def what_is_undecided_is_known(self) -> None:
        if self.local_end():
            assert self.log.first_unstable_offset == self.first_unstable()
            opened = [each for each in self.transactions() if each.marker is None]
            found = [(each.producer_id, each.first_offset) for each in self.log.producers.open_transactions()]
            assert found == sorted(((each.producer, each.first) for each in opened), key=lambda each: each[1])

    @invariant()
    def what_was_aborted_is_known(self) -> None:
        start = int(self.log.local_log_start_offset)
        ranges = random.Random(self.end)
        for _ in range(4 if start < self.end else 0):
            first = ranges.randint(start, self.end - 1)
            self.look_for_aborted(first, ranges.randint(first + 1, self.end))

    def look_for_aborted(self, first: int, end: int) -> None:
        found = self.log.aborted.overlapping(first, end)
        assert found == sorted(found, key=lambda each: each.first_offset)
        wanted = [
            (each.producer, each.first, each.marker)
            for each in self.transactions()
            if each.aborted and each.marker is not None and each.marker >= first and each.first < end
        ]
        if self.exact:
            assert [each[:3] for each in found] == sorted(wanted, key=lambda each: each[1])
        hidden = Hidden(found)
        for _, header in iter_headers(read_bytes(self.log, first)):
            if not header.is_control and header.base_offset < end and header.base_offset >= first:
                assert (header in hidden) == self.was_aborted(header.base_offset)

    def was_aborted(self, offset: int) -> bool:
        (of,) = [each for each in self.stored if each.base == offset]
        return of.transactional and any(
            each.aborted and each.producer == of.producer and each.first <= offset < (each.marker or 0)
            for each in self.transactions()
        )

    def local_end(self) -> int:
        return self.end if self.log.segment_count else 0


def harm(path: str, how: int) -> None:
    """Removes the file, cuts it short, or flips a bit in it."""
    if how == 0:
        os.unlink(path)
        return
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        if how == 1:
            file.truncate(len(content) // 2)
        else:
            content[len(content) // 2] ^= 4
            file.seek(0)
            file.write(content)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
