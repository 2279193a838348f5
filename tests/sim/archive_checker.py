"""What must hold of the archive, judged from the objects in the bucket and what is on the disks, at every change.

12 no committed record is missing from both tiers    13 what the newest manifest names is there, whole, and true
14 a local segment goes after its manifest came      15 an object goes a grace period after the manifest let go of it
17 the chain of manifests has one owner at a time    18 an upload that was given up is gone before the next is published

A manifest of a deposed leader that came between its successor's look and the successor's first, and that metadata never
knew, may be passed over: then what it alone names is an upload that was given up. Nobody dropped anything for it.
"""

from collections.abc import Collection

from cold_tier.layout import SegmentName, Version
from cold_tier.manifest.codec import read_snapshot
from cold_tier.manifest.model import SegmentEntry, Snapshot
from hot_tier.cluster.model import Archived
from hot_tier.ids import LeaderEpoch, NodeId
from hot_tier.record.crc import crc32c
from tests.sim.archive import layout_of
from tests.sim.bucket import FASTEST_CLOCK, Bucket
from tests.sim.checker import Checker
from tests.sim.disk import Log, decode_records
from tests.sim.world import World

PARTITION = 0


class ArchiveChecker:
    def __init__(self, world: World, checker: Checker, bucket: Bucket, grace_ms: float) -> None:
        self._world = world
        self._checker = checker
        self._bucket = bucket
        self._grace_ms = grace_ms
        self._layout = layout_of(PARTITION)
        self.newest: Snapshot | None = None
        """Of those that readers can find, and those that metadata knows, also while a fault hides them."""
        self._snapshots: dict[Version, Snapshot] = {}
        self._recorded: Version | None = None
        self.published = 0
        self.dropped = 0
        self.deleted = 0
        self.taken_over = 0
        self._let_go_ms: dict[str, float] = {}
        """When the newest manifest ceased to name an object."""
        self._abandoned: dict[str, int] = {}
        """Uploads that no manifest named when this leader epoch's first was published, by the size they had."""
        self._was_named: set[str] = set()
        self._uploading: str | None = None
        """What metadata names."""
        self._stray: set[str] = set()
        """Uploads that came when metadata named them no more: late, or from a leader that was deposed."""

    def _violation(self, what: str) -> Exception:
        return self._checker._violation(what)

    # The bucket

    def changed(self, key: str, before: bytes | None, after: bytes | None) -> None:
        if after is not None:
            self._abandoned.pop(key, None)
            name, version = self._layout.parse_rows(key), self._layout.parse_manifest(key)
            if version is not None:
                self._publish(key, version, before, after)
            elif name is not None:
                self._upload(key, name)
        elif self._layout.parse_rows(key) or self._layout.parse_index(key):
            self._delete(key)

    def _upload(self, key: str, name: SegmentName) -> None:
        if key == self._uploading:
            return
        deposed = self.newest is not None and self.newest.version.leader_epoch > name.leader_epoch
        if not deposed and not self._bucket.is_late:
            raise self._violation(f"18: {key} is uploaded, and metadata names {self._uploading}")
        self._stray.add(key)

    def _publish(self, key: str, version: Version, before: bytes | None, after: bytes) -> None:
        snapshot = read_snapshot(after, key)
        if before is not None and read_snapshot(before, key).nonce != snapshot.nonce:
            raise self._violation(f"17: manifest {tuple(version)} was published twice")
        self._snapshots[version] = snapshot
        newest = self.newest
        if newest is not None and version <= newest.version:
            return  # A deposed leader's: no reader follows it.
        for segment in snapshot.tail:
            self._check_stored(segment)
        named = self._named(snapshot)
        if newest is not None:
            self._check_chain(newest, snapshot)
            if self._recorded is not None and newest.version <= self._recorded:
                for gone in self._named(newest) - named:
                    self._let_go_ms[gone] = self._world.now_ms
        if newest is None or newest.version.leader_epoch != version.leader_epoch:
            self.taken_over += 1
            self._abandoned = {
                key: len(data)
                for key, (data, _) in self._bucket.objects.items()
                if self._layout.parse_rows(key) and key not in named | self._was_named | self._stray
            }
        self._was_named |= named
        self.newest = snapshot
        self.published += 1

    def manifests_moved(self, away: Collection[str], logs: Collection[Log]) -> None:
        """A fault took manifests away, or gave them back. One that is away and that metadata does not know is lost like
        one that never came, unless a replica began where it ends."""
        hidden = {self._layout.parse_manifest(key) for key in away}
        left = [version for version in self._snapshots if version not in hidden or version == self._recorded]
        newest = self._snapshots[max(left)] if left else None
        relied_on = max((log.local_log_start_offset for log in logs), default=0)
        if self.newest is None or relied_on <= (0 if newest is None else newest.end_offset):
            self.newest = newest

    def recorded(self, key: str, before: object, after: object) -> None:
        """Metadata says which manifest is the newest."""
        if not isinstance(after, Archived):
            return
        mark, self._uploading = after.manifest, after.uploading
        if mark is not None:
            version = Version(LeaderEpoch(mark.leader_epoch), mark.sequence)
            self._recorded = version
            if self.newest is None or version > self.newest.version:
                self.newest = self._snapshots[version]

    def _named(self, snapshot: Snapshot) -> set[str]:
        layout = self._layout
        return {key for each in snapshot.tail for key in (layout.rows(each.name), layout.index(each.name))}

    def _check_stored(self, segment: SegmentEntry) -> None:
        rows, index = self._layout.rows(segment.name), self._layout.index(segment.name)
        for key, size, checksum in (
            (rows, segment.rows_bytes, segment.rows_crc32c),
            (index, segment.index_bytes, segment.index_crc32c),
        ):
            stored = self._bucket.objects.get(key)
            if stored is None or (len(stored[0]), crc32c(stored[0])) != (size, checksum):
                raise self._violation(f"13: the newest manifest names {key}, which is not there as it should be")
        known = self._checker.committed_records[PARTITION]
        for offset, record in enumerate(decode_records(self._bucket.objects[rows][0]), segment.base_offset):
            if known.get(offset) != record:
                raise self._violation(f"13: {rows} has {record} at {offset}, {known.get(offset)} is committed there")

    def _check_chain(self, newest: Snapshot, snapshot: Snapshot) -> None:
        if snapshot.version.leader_epoch == newest.version.leader_epoch and (
            snapshot.end_offset < newest.end_offset or snapshot.log_start_offset < newest.log_start_offset
        ):
            raise self._violation(f"17: {snapshot.version} goes back from {newest.version}")
        known = {each.name for each in newest.tail}
        for segment in snapshot.tail:
            if segment.name not in known:
                self._check_no_other_upload(segment)

    def _check_no_other_upload(self, segment: SegmentEntry) -> None:
        for key in self._abandoned:
            name = self._layout.parse_rows(key)
            if name is not None and name != segment.name and name.base_offset == segment.base_offset:
                raise self._violation(f"18: {key} is still there, and its records are published a second time")

    def _delete(self, key: str) -> None:
        self.deleted += 1
        self._abandoned.pop(key, None)
        if self.newest is not None and key in self._named(self.newest):
            raise self._violation(f"13: {key} is deleted, and the newest manifest names it")
        let_go_ms = self._let_go_ms.pop(key, None)
        if let_go_ms is not None and self._world.now_ms - let_go_ms < self._grace_ms / FASTEST_CLOCK - 1:
            raise self._violation(f"15: {key} is deleted {self._world.now_ms - let_go_ms:.0f} ms after it was let go")

    # The disks

    def drops(self, node: NodeId, start: int, end: int, log_start: int) -> None:
        """Local segments of [start, end) go. What lies below the log start was deleted on purpose."""
        self.dropped += 1
        newest = self.newest
        if end > log_start and (newest is None or end > newest.end_offset):
            reach = None if newest is None else newest.end_offset
            raise self._violation(f"14: broker {node} drops {start} to {end}, the archive ends at {reach}")

    def in_sync(self, node: NodeId, log: Log | None) -> None:
        """A member of the in-sync set may be the next leader: what it has not itself must be in the bucket."""
        if log is None:
            return
        newest = self.newest
        if log.local_log_start_offset > log.log_start_offset and (
            newest is None or log.local_log_start_offset > newest.end_offset
        ):
            raise self._violation(
                f"12: broker {node} has records from {log.local_log_start_offset} on, "
                f"the archive ends at {newest and newest.end_offset}"
            )

    def ends(self, log: Log) -> None:
        """All that was acknowledged and not deleted is in one of the tiers, and what it was."""
        newest = self.newest
        cold: dict[int, int] = {}
        for segment in () if newest is None else newest.tail:
            self._check_stored(segment)
            rows = decode_records(self._bucket.objects[self._layout.rows(segment.name)][0])
            cold |= {offset: record.value for offset, record in enumerate(rows, segment.base_offset)}
        for offset, value in self._checker.told[PARTITION].items():
            if offset < log.log_start_offset:
                continue
            found = log.at(offset).value if offset >= log.local_log_start_offset else cold.get(offset)
            if found != value:
                raise self._violation(f"12: {value} was acknowledged at {offset}, {found} is there")
