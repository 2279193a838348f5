"""The partition log against a model that keeps everything in a list."""

import asyncio
import os
import random
import shutil
import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hot_tier.errors import OffsetOutOfRange, OutOfOrderSequence
from hot_tier.ids import Offset
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.state import read_clean_shutdown, write_clean_shutdown
from hot_tier.record.batch import read_header
from hot_tier.record.records import decode_records
from tests.hot_tier.log.power_loss import PowerLoss
from tests.hot_tier.log.support import NOW, SETTINGS, TOPIC_ID, TP, append, batch, recover, release

CONFIG = TopicConfig(segment_bytes=1024, index_interval_bytes=150, segment_ms=10_000, file_delete_delay_ms=0)


@dataclass(frozen=True)
class Written:
    offset: int
    batch_base: int
    timestamp: int
    value: bytes


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.mkdtemp()
        self.data_dir = os.path.join(self.directory, "0")
        os.mkdir(self.data_dir)
        self.patch = pytest.MonkeyPatch()
        self.disk = PowerLoss(self.data_dir, self.patch)
        self.log = PartitionLog(Disk(self.data_dir, SETTINGS), TP, TOPIC_ID, CONFIG)
        self.records: list[Written] = []
        self.batches: list[tuple[int, int, int]] = []
        """(first sequence, base offset, end offset) of the one idempotent producer."""
        self.end = 0
        self.log_start = 0
        self.epoch = 0
        self.now = NOW
        self.generation = 0

    def teardown(self) -> None:
        release(self.log)
        self.disk.close()
        self.patch.undo()
        self.loop.close()
        shutil.rmtree(self.directory)

    # What happens to it

    @rule(
        sizes=st.lists(st.integers(0, 150), min_size=1, max_size=4),
        drift=st.lists(st.integers(-500, 500), min_size=4, max_size=4),
        codec=st.integers(0, 4),
        idempotent=st.booleans(),
        passed_ms=st.integers(0, 4_000),
    )
    def append(self, sizes: list[int], drift: list[int], codec: int, idempotent: bool, passed_ms: int) -> None:
        self.now += passed_ms
        values = [os.urandom(size) for size in sizes]
        timestamps = [self.now + drift[at] for at in range(len(values))]
        sequence = self.next_sequence() if idempotent else -1
        data = batch(
            *values,
            timestamps=timestamps,
            codec=codec,
            producer=77 if idempotent else -1,
            epoch=0 if idempotent else -1,
            sequence=sequence,
        )
        appended = append(self.log, data, epoch=self.epoch, now_ms=self.now)
        assert appended == (self.end, self.end + len(values), -1, False)
        if idempotent:
            self.batches.append((sequence, self.end, self.end + len(values)))
        for at, value in enumerate(values):
            self.records.append(Written(self.end + at, self.end, timestamps[at], value))
        self.end += len(values)

    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        first, base, end = self.batches[-1]
        return first + end - base

    @precondition(lambda self: self.batches)
    @rule(back=st.integers(0, 7))
    def retry(self, back: int) -> None:
        first, base, end = self.batches[max(0, len(self.batches) - 1 - back)]
        data = batch(*[b"again"] * (end - base), producer=77, epoch=0, sequence=first)
        if (first, base, end) in self.batches[-5:]:
            assert append(self.log, data, now_ms=self.now) == (base, end, -1, True)
        else:
            with pytest.raises(OutOfOrderSequence):
                append(self.log, data, now_ms=self.now)

    @rule()
    def leave_a_gap_in_the_sequence(self) -> None:
        if self.batches:
            data = batch(b"gap", producer=77, epoch=0, sequence=self.next_sequence() + 1)
            with pytest.raises(OutOfOrderSequence):
                append(self.log, data, now_ms=self.now)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.flushed_offset == self.end

    @rule(passed_ms=st.integers(0, 12_000))
    def pass_time(self, passed_ms: int) -> None:
        self.now += passed_ms
        self.log.maybe_roll(self.now)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        if self.end:
            self.log_start = max(self.log_start, data.draw(st.integers(0, self.end)))
            self.log.delete_records_before(self.log_start)

    @rule(kept=st.integers(0, 3_000))
    def retain_by_size(self, kept: int) -> None:
        self.log.set_config(TopicConfig(**{**_fields(CONFIG), "retention_bytes": kept, "retention_ms": -1}))
        before = sum(segment.size for segment in self.log.segments() if segment.end_offset > self.log_start)
        self.log.apply_retention(self.now)
        self.log.set_config(CONFIG)
        assert self.log.size_bytes >= min(before, kept)
        self.log_start = max(self.log_start, int(self.log.log_start_offset))

    @rule(kept_ms=st.integers(0, 30_000))
    def retain_by_time(self, kept_ms: int) -> None:
        self.log.set_config(TopicConfig(**{**_fields(CONFIG), "retention_ms": kept_ms}))
        self.log.apply_retention(self.now)
        self.log.set_config(CONFIG)
        for record in self.records:
            if self.log_start <= record.offset < self.log.log_start_offset:
                assert record.timestamp < self.now - kept_ms
        self.log_start = max(self.log_start, int(self.log.log_start_offset))

    @precondition(lambda self: self.end > self.log_start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.end))
        first_local = self.log.segments()[0].base_offset
        bases = {record.batch_base for record in self.records if record.offset == offset}
        end = bases.pop() if bases else offset
        self.log.truncate_to(offset, self.now)
        end = max(end, first_local)
        self.cut(end)

    def cut(self, end: int) -> None:
        self.records = [record for record in self.records if record.offset < end]
        self.batches = [written for written in self.batches if written[2] <= end]
        self.end = end
        self.log_start = min(self.log_start, end)
        assert self.log.log_end_offset == end

    # How it is opened again

    @rule()
    def stop_cleanly(self) -> None:
        self.log.flush()
        state = self.log.state()
        if not state.segments:
            return
        state.segments[-1].save_index()
        content = write_clean_shutdown({(TOPIC_ID, 0): state}, self.log._disk.logs_directory)
        release(self.log)
        disk = Disk(self.data_dir, SETTINGS)
        states = read_clean_shutdown(content, disk.logs_directory, disk.files)
        assert states is not None
        self.log = PartitionLog(disk, TP, TOPIC_ID, CONFIG, states[TOPIC_ID, 0])
        assert len(disk.files) == 0
        assert self.log.flushed_offset == self.end

    @rule()
    def kill(self) -> None:
        release(self.log)
        self.log, recovered = recover(self.data_dir, self.log.directory, CONFIG)
        assert recovered.damaged == []
        assert recovered.cut_bytes == 0
        assert self.log.flushed_offset == self.end

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        flushed = int(self.log.flushed_offset)
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
        assert flushed <= self.log.log_end_offset <= self.end
        self.log_start = int(self.log.log_start_offset)
        self.cut(int(self.log.log_end_offset))

    # What it must answer

    @invariant()
    def offsets_are_in_order(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.local_log_start_offset <= log.log_end_offset == self.end
        assert log.flushed_offset <= log.log_end_offset
        assert log.log_start_offset == self.log_start or log.segment_count == 0
        assert len(log._disk.files) <= SETTINGS.max_open_files

    @rule(data=st.data(), max_bytes=st.integers(1, 2_000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(-1, self.end + 1))
        end_offset = data.draw(st.sampled_from(sorted({record.batch_base for record in self.records} | {self.end})))
        if not self.log_start <= offset <= self.end:
            with pytest.raises(OffsetOutOfRange):
                self.log.locate(offset, max_bytes, end_offset)
            return
        slice_ = self.log.locate(offset, max_bytes, end_offset)
        visible = [record for record in self.records if offset <= record.offset < end_offset]
        if slice_ is None:
            assert not visible
            return
        found = self.log.read_now(slice_)
        if found is None:
            found = self.loop.run_until_complete(self.log.read(slice_))
        records = decode_records(found, from_offset=offset)
        assert records, "at least one batch"
        assert [(r.offset, r.value, r.timestamp) for r in records] == [
            (r.offset, r.value, r.timestamp) for r in visible[: len(records)]
        ]
        assert len(found) <= max_bytes or len(found) == read_header(found).size

    @rule(data=st.data())
    def read_everything(self, data: st.DataObject) -> None:
        offset = self.log_start
        seen: list[bytes | None] = []
        while (slice_ := self.log.locate(offset, 700, self.end)) is not None:
            found = self.log.read_now(slice_)
            if found is None:
                found = self.loop.run_until_complete(self.log.read(slice_))
            records = decode_records(found, from_offset=offset)
            seen += [record.value for record in records]
            offset = records[-1].offset + 1
        assert seen == [record.value for record in self.records if record.offset >= self.log_start]

    @rule(data=st.data())
    def look_up_a_time(self, data: st.DataObject) -> None:
        times = sorted({record.timestamp for record in self.records}) or [NOW]
        timestamp = data.draw(st.sampled_from(times)) + data.draw(st.integers(-1, 1))
        end_offset = data.draw(st.sampled_from(sorted({record.batch_base for record in self.records} | {self.end})))
        found = self.loop.run_until_complete(self.log.offset_for_timestamp(timestamp, Offset(end_offset)))
        expected = [
            (record.offset, record.timestamp)
            for record in self.records
            if record.timestamp >= timestamp and self.log_start <= record.offset < end_offset
        ]
        assert (found and (found.offset, found.timestamp)) == (expected[0] if expected else None)

    @rule()
    def look_up_the_latest(self) -> None:
        found = self.loop.run_until_complete(self.log.max_timestamp_offset())
        visible = [record for record in self.records if record.offset >= self.log_start]
        latest = max(visible, key=lambda record: record.timestamp, default=None)
        assert (found and (found.offset, found.timestamp)) == (latest and (latest.offset, latest.timestamp))


def test_epochs_of_a_killed_process_outlive_a_power_cut() -> None:
    """The process that found the batches after the kill counts them as synced, and their epoch has to be."""
    state = LogMachine()
    try:
        state.start()
        one = {"codec": 0, "drift": [0] * 4, "idempotent": False, "passed_ms": 0, "sizes": [0]}
        state.append(**one)
        state.flush()
        state.new_epoch()
        state.append(**one)
        state.kill()
        state.lose_power(seed=0)
    finally:
        state.teardown()


def _fields(config: TopicConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in TopicConfig.__dataclass_fields__}


LogMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestLogAgainstModel = LogMachine.TestCase
