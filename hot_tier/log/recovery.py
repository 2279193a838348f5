"""Brings one partition's files to a state that can be served, after a stop that was not clean.

Where a segment stands tells what may be done to it:

    sealed (a whole `.index` says so)       not read; whoever reads it proves it first. Never cut. Shorter than its seal
                                            says: damaged.
    not sealed, below the recovery point    synced. Never cut; a bad batch there is damage.
    not sealed, beyond the recovery point   nobody was promised these bytes. Every batch is checked, and the log is cut
                                            at the first bad one; later segments go.

Batches must follow each other without a gap, unless the log is known to have some (`log_start`), in leader epochs that
fit the history. Up to the recovery point their heads must be those that were synced. A log that begins later than
`log-start` says has lost its first file.

Damage is reported, and served as CorruptLog; new batches then go to a new segment, after every offset that was ever
synced. Everything kept is synced before it is served: a batch that only the page cache holds is not yet durable.

`look` leaves everything that shows what is missing as it was; `repair` puts the log in order. In between what was found
is written down (`damaged_logs`): killed while it repairs, a process leaves logs in which nothing seems to be missing.

This code runs in threads, before the log is served.
"""

import os
from dataclasses import dataclass, field

import structlog

from hot_tier.log import names
from hot_tier.log.compaction.swap import finish_swaps
from hot_tier.log.disk import Disk
from hot_tier.log.epochs import LeaderEpochs, read_epochs
from hot_tier.log.files import replace_synced, sync_data, sync_directory, write_synced
from hot_tier.log.index import NO_TIMESTAMP, SEAL_BYTES, UNKNOWN, Seal, SparseIndex, read_seal
from hot_tier.log.index_files import note_rows
from hot_tier.log.log_start import LogStart, read_log_start
from hot_tier.log.names import OffsetFile
from hot_tier.log.producer_snapshots import restore_history
from hot_tier.log.proof import NotWhole, prove_segment
from hot_tier.log.recovery_points import RecoveryPoint
from hot_tier.log.scan import ANYWHERE, BASE_OFFSET, HEADS_DIFFER, LAST_OFFSET, LEADER_EPOCH, MAX_TIMESTAMP, Rows, Walk
from hot_tier.log.segment import Segment
from hot_tier.log.state import DEFAULT_INDEX_INTERVAL, LogState

_log = structlog.get_logger()


@dataclass(slots=True)
class Recovered:
    state: LogState
    checked_bytes: int = 0
    cut_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    """Paths of segments in which damage was found."""
    empty: bool = False
    """Nothing is left of what was synced."""
    unsure: bool = False
    """There are gaps beyond the recovery point: compaction left them at a leader, or an offset there is wrong."""


class Recovery:
    """Recovers one partition directory: `look`, then `repair`, each called once."""

    def __init__(self, disk: Disk, directory: str, point: RecoveryPoint | None, now_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        self._point = point or RecoveryPoint(-1, -1, 0)
        self._now_ms = now_ms
        self._state = LogState(directory)
        self._result = Recovered(self._state)
        self._unsynced: dict[str, int] = {}
        """Log files that must be synced, and where they end then."""
        self._dropped: list[int] = []
        """Segments after the end."""
        self._start = LogStart(0, None, ANYWHERE)
        self._changed = False
        """Something must be synced beyond the log files themselves."""

    def look(self) -> Recovered:
        self._changed = finish_swaps(self._directory)
        files = self._tidy()
        bases = sorted(file.offset for file in files if file.suffix == names.LOG)
        self._state.epochs = self._read_epochs()
        self._start = read_log_start(self._read(names.LOG_START))
        self._state.start_offset = self._start.offset
        self._look_at_start(bases)
        for at, base_offset in enumerate(bases):
            next_base = bases[at + 1] if at + 1 < len(bases) else None
            if not self._add(base_offset, next_base):
                self._drop(bases[at + 1 :])
                break
        self._look_at_end()
        return self._result

    def repair(self) -> None:
        for base_offset in reversed(self._dropped):
            self._changed = True
            for suffix in (names.INDEX, names.TIME_INDEX, names.ABORTED, names.LOG):
                try:
                    os.unlink(self._path(base_offset, suffix))
                except FileNotFoundError:
                    pass
        for path, end in self._unsynced.items():
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size > end:
                    os.ftruncate(fd, end)
                sync_data(fd)
            finally:
                os.close(fd)
        self._finish()

    # The directory

    def _tidy(self) -> list[OffsetFile]:
        """Removes what a crash left half done. Returns the files that count."""
        files: list[OffsetFile] = []
        for name in os.listdir(self._directory):
            file = names.parse_offset_file(name)
            if name.endswith((names.TEMPORARY, names.DELETED, names.CLEANED)):
                os.unlink(os.path.join(self._directory, name))
                self._changed = True
            elif file is not None:
                files.append(file)
        logs = {file.offset for file in files if file.suffix == names.LOG}
        for file in files:
            if file.suffix in (names.INDEX, names.TIME_INDEX, names.ABORTED) and file.offset not in logs:
                os.unlink(self._path(file.offset, file.suffix))
        return files

    def _path(self, offset: int, suffix: str) -> str:
        return os.path.join(self._directory, names.offset_file(offset, suffix))

    def _read(self, name: str) -> bytes:
        try:
            with open(os.path.join(self._directory, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def _read_epochs(self) -> LeaderEpochs:
        return read_epochs(self._read(names.LEADER_EPOCHS)) or LeaderEpochs()

    def _look_at_start(self, bases: list[int]) -> None:
        first = self._start.first_base
        end = bases[0] if bases else self._point.offset
        if first is not None and first < end:
            segment = Segment.missing(self._disk.files, self._directory, first, end)
            self._result.damaged.append(segment.path)
            self._state.segments.append(segment)

    # Segments

    def _add(self, base_offset: int, next_base: int | None) -> bool:
        """Takes the next segment. Returns False if the log ends with it, or before it."""
        segments = self._state.segments
        if segments and base_offset <= (self._start.local or 0) and segments[-1].end_offset != base_offset:
            self._leave_behind()
        if segments and segments[-1].end_offset != base_offset:
            if base_offset > self._point.segment_base and not self._sealed(base_offset):
                self._drop([base_offset])
                return False
            self._lost(segments[-1], base_offset, f"the log goes on at offset {base_offset}, a file is missing")
        seal = self._sealed(base_offset)
        if seal is not None:
            self._add_sealed(seal, next_base)
            return True
        return self._add_unsealed(base_offset, next_base)

    def _leave_behind(self) -> None:
        """Gives up the segments so far: retention deleted them, and the disk refused to."""
        segments, result = self._state.segments, self._result
        for segment in segments:
            _log.warning("a deleted segment was still there, it is removed", file=segment.path)
            self._dropped.append(segment.base_offset)
            self._unsynced.pop(segment.path, None)
        result.damaged = [path for path in result.damaged if path not in {each.path for each in segments}]
        segments.clear()

    def _sealed(self, base_offset: int) -> Seal | None:
        try:
            with open(self._path(base_offset, names.INDEX), "rb") as file:
                seal = read_seal(file.read(SEAL_BYTES))
        except FileNotFoundError:
            return None
        return seal if seal is not None and seal.sealed and seal.base_offset == base_offset else None

    def _add_sealed(self, seal: Seal, next_base: int | None) -> None:
        segment = Segment.from_seal(self._disk.files, self._directory, seal, DEFAULT_INDEX_INTERVAL)
        segment.created_ms = seal.max_timestamp
        if os.path.getsize(segment.path) < seal.log_bytes:
            self._damage(segment, os.path.getsize(segment.path), "the file is shorter than its seal says")
        elif seal.damaged:
            self._find_damage(segment)
        if next_base is not None and next_base < seal.end_offset:
            self._damage(segment, 0, f"the next segment starts at {next_base}, inside this one")
        self._state.segments.append(segment)

    def _add_unsealed(self, base_offset: int, next_base: int | None) -> bool:
        segment = Segment(self._disk.files, self._directory, base_offset, DEFAULT_INDEX_INTERVAL)
        segment.index = SparseIndex()
        self._state.segments.append(segment)
        point = self._point
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            file_bytes = os.fstat(fd).st_size
            if point.segment_base > base_offset:
                synced = file_bytes
            elif point.segment_base == base_offset:
                synced = point.position
            else:
                synced = 0
            walk = self._walk(fd, 0, min(synced, file_bytes), base_offset)
            self._take(segment, walk)
            if walk.position < synced or (point.segment_base == base_offset and self._differs(walk)):
                self._unsynced[segment.path] = file_bytes
                self._resume_after_damage(segment, fd, walk, synced, file_bytes, next_base)
                return True
            tail = self._walk(fd, synced, file_bytes, walk.next_offset, tail=True, digest=walk.header_digest)
            self._result.unsure |= self._take(segment, tail)
            if tail.fault is not None:
                self._result.cut_bytes += file_bytes - tail.position
                _log.warning(
                    "log cut at its unsynced end",
                    file=segment.path,
                    position=tail.position,
                    cut_bytes=file_bytes - tail.position,
                    reason=tail.fault,
                )
            if file_bytes > synced:
                # Else it is all synced already, and syncing 4,000 unchanged files would still take seconds.
                self._unsynced[segment.path] = tail.position
            return tail.fault is None
        finally:
            os.close(fd)

    def _walk(self, fd: int, start: int, end: int, next_offset: int, *, tail: bool = False, digest: int = 0) -> Walk:
        """Walks batches. In the tail it checks CRCs, and accepts epochs that 0.1.0 had not yet written to
        `leader-epochs`."""
        return Walk(
            fd,
            start,
            end,
            next_offset,
            gaps_below=self._start.gaps_below,
            check_from=0 if tail else None,
            history=self._state.epochs.history(),
            may_rise=tail and self._start.local is None,
            digest=digest,
        )

    def _differs(self, walk: Walk) -> bool:
        """Returns whether what was walked up to the recovery point differs from what was synced."""
        point = self._point
        return walk.next_offset != point.offset or (
            point.batches != UNKNOWN and (walk.batches, walk.header_digest) != (point.batches, point.header_digest)
        )

    def _take(self, segment: Segment, walk: Walk) -> bool:
        """Takes over everything that the walked headers say about the segment. Returns whether there are gaps between
        them."""
        assert segment.index is not None
        start, gaps = walk.position, False
        for rows in walk:
            if segment.created_ms == 0:
                first = int(rows[0, MAX_TIMESTAMP])
                segment.created_ms = min(first, self._now_ms) if first != NO_TIMESTAMP else self._now_ms
            gaps |= bool(rows[0, BASE_OFFSET] != segment.end_offset)
            gaps |= bool((rows[1:, BASE_OFFSET] != rows[:-1, LAST_OFFSET] + 1).any())
            segment.end_offset = int(rows[-1, LAST_OFFSET]) + 1
            latest = note_rows(segment.index, rows, segment.base_offset, segment.max_timestamp, segment.index_interval)
            if latest > segment.max_timestamp:
                segment.max_timestamp = latest
                segment.max_timestamp_offset = int(rows[int(rows[:, MAX_TIMESTAMP].argmax()), BASE_OFFSET])
            self._note_epochs(rows)
        if segment.batches != UNKNOWN:
            segment.batches += walk.batches
            segment.header_digest = walk.header_digest
        segment.dense &= not gaps
        segment.found(walk.position, walk.next_offset)
        self._result.checked_bytes += walk.position - start
        return gaps

    def _note_epochs(self, rows: Rows) -> None:
        epochs = self._state.epochs
        for at in (rows[:, LEADER_EPOCH] > epochs.latest).nonzero()[0].tolist():
            epochs.assign(int(rows[at, LEADER_EPOCH]), int(rows[at, BASE_OFFSET]))

    # Damage

    def _find_damage(self, segment: Segment) -> None:
        """Finds damage in a segment that an earlier recovery sealed as damaged. Only the file tells where it is."""
        try:
            prove_segment(segment.path, segment.info().contents)
        except NotWhole as error:
            self._damage(segment, error.position, error.what)
        else:
            if segment.batches == UNKNOWN:
                self._unsound(segment, "it was damaged when it was sealed")

    def _unsound(self, segment: Segment, what: str) -> None:
        segment.damage.mark_unsound(what)
        self._result.damaged.append(segment.path)

    def _damage(self, segment: Segment, position: int, what: str) -> None:
        segment.damage.mark(position, what)
        self._result.damaged.append(segment.path)

    def _resume_after_damage(
        self, segment: Segment, fd: int, walk: Walk, synced: int, file_bytes: int, next_base: int | None
    ) -> None:
        """Handles a bad batch where the log had been synced. The batch stays; the walk continues where a batch is known
        to start."""
        point = self._point
        if walk.position < synced:
            self._result.damaged.append(segment.path)
            what = walk.fault or "the file is shorter than what was synced"
            segment.damage.blame(fd, walk.last if walk.batches else -1, walk.position, what)
        else:
            self._look_for_damage(segment, fd, synced)
        if point.segment_base != segment.base_offset:
            end_offset = max(walk.next_offset, next_base or 0, point.offset if next_base is None else 0)
            segment.found(file_bytes, end_offset)
            segment.batches = UNKNOWN
            return
        # What it must hold is still known, so a whole copy can be told from a damaged one.
        segment.batches, segment.header_digest = point.batches, point.header_digest
        start = min(synced, file_bytes)
        segment.found(start, point.offset)
        tail = self._walk(fd, start, file_bytes, point.offset, tail=True, digest=point.header_digest)
        self._result.unsure |= self._take(segment, tail)
        segment.found(max(segment.size, synced), segment.end_offset)
        if tail.fault is not None:
            self._result.cut_bytes += file_bytes - tail.position
            self._unsynced[segment.path] = tail.position

    def _look_for_damage(self, segment: Segment, fd: int, synced: int) -> None:
        """Looks for damage where the heads up to the recovery point are not those that were synced. A wrong CRC shows
        the place."""
        walk = Walk(fd, 0, synced, segment.base_offset, gaps_below=self._start.gaps_below, check_from=0)
        for _ in walk:
            pass
        if walk.fault is not None:
            self._damage(segment, walk.position, walk.fault)
        else:
            self._unsound(segment, HEADS_DIFFER)

    def _lost(self, before: Segment, end_offset: int, what: str) -> None:
        """Marks everything between `before` and `end_offset` as missing. Readers must get an error there, and not skip
        it."""
        self._damage(before, before.size, what)
        if before.sealed:
            before.end_offset = end_offset
        else:
            # So its seal will say, and the next recovery finds the file shorter than that.
            before.found(before.size + 1, end_offset)
            before.batches = UNKNOWN

    def _drop(self, bases: list[int]) -> None:
        for base_offset in bases:
            path = self._path(base_offset, names.LOG)
            self._result.cut_bytes += os.path.getsize(path)
            _log.warning("unsynced segment after the cut removed", file=path)
        self._dropped += bases

    # The end

    def _look_at_end(self) -> None:
        segments = self._state.segments
        if segments:
            last = segments[-1]
            self._result.empty = all(segment.damage.unsound and not segment.size for segment in segments)
            if last.end_offset < self._point.offset:
                self._lost(last, self._point.offset, f"everything up to offset {self._point.offset} had been synced")
        elif self._point.offset > self._state.start_offset:
            self._result.damaged.append(self._directory)
            self._result.empty = True
            _log.error("log files are missing", directory=self._directory, synced_offset=self._point.offset)

    def _finish(self) -> None:
        state = self._state
        segments = state.segments
        last = segments[-1] if segments else None
        closed = [each for each in segments if not each.sealed and (each is not last or each.damage.positions)]
        for segment in closed:
            segment.sealed = True
        state.producers = restore_history(self._directory, segments, state.end_offset, self._now_ms)
        for segment in closed:
            self._seal(segment)
        if last is not None and last.sealed:
            self._add_active(last.end_offset)
        elif last is None and (state.start_offset or self._point.offset > 0):
            self._add_active(max(state.start_offset, self._point.offset))
        state.start_offset = min(state.start_offset, state.end_offset)
        state.start_known = self._start.local is not None and self._start.gaps_below >= state.gaps_below
        self._settle_epochs()
        if self._point.offset < 0:
            # It was never synced, so neither were the directories on the way to it.
            topic_directory = os.path.dirname(self._directory)
            sync_directory(os.path.dirname(topic_directory))
            sync_directory(topic_directory)
        if (
            self._changed
            or self._point.offset < 0
            or (segments and segments[-1].base_offset > self._point.segment_base)
        ):
            sync_directory(self._directory)

    def _settle_epochs(self) -> None:
        epochs = self._state.epochs
        epochs.truncate_end(self._state.end_offset)
        stored = self._read(names.LEADER_EPOCHS)
        if read_epochs(stored) is None:
            epochs = self._state.epochs = LeaderEpochs()
            for segment in self._state.segments:
                if segment.damage.unsound:
                    continue
                fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    for rows in Walk(fd, 0, segment.size, segment.base_offset):
                        self._note_epochs(rows)
                finally:
                    os.close(fd)
        content = epochs.write()
        # A process that was killed may not have synced the epochs of what counts as synced from now on.
        if content != stored or self._state.end_offset > self._point.offset:
            replace_synced(os.path.join(self._directory, names.LEADER_EPOCHS), content)

    def _seal(self, segment: Segment) -> None:
        segment.seal_written = True
        self._changed = True
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for path, content in segment.index_files(fd, sealed=True):
                write_synced(path, content)
        finally:
            os.close(fd)

    def _add_active(self, base_offset: int) -> None:
        segment = Segment(self._disk.files, self._directory, base_offset, DEFAULT_INDEX_INTERVAL)
        self._changed = True
        os.close(os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        segment.index = SparseIndex()
        self._state.segments.append(segment)
