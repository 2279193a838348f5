"""What cluster metadata says about one partition's archive, as its leader reads and writes it.

The record holds how far the archive reaches, so that followers know what they may drop; which upload is under way;
which manifest was published last, and by whom; and whether the archive is stopped. Every write is a compare-and-swap. A
deposed leader writes nothing, because its successor writes its epoch and token here before it publishes
(`offloader.trust`).
"""

import dataclasses
from collections.abc import Callable

from cold_tier.errors import ManifestFenced
from cold_tier.layout import PartitionLayout, Version
from cold_tier.manifest.model import Snapshot
from hot_tier.cluster.model import (
    Archived,
    ManifestMark,
    Stopped,
    Writer,
    archived_key,
    decode_archived,
    decode_partition,
    encode,
    partition_key,
)
from hot_tier.cluster.store import ABSENT, Compare, MetadataStore, Put, Revision
from hot_tier.ids import LeaderEpoch, Offset

_MOST_WRITERS = 64
"""The most tokens of leaders that never published. Each stands for a start that failed although the bucket answered."""


class ArchiveRecord:
    def __init__(self, metadata: MetadataStore, layout: PartitionLayout, writer: Writer) -> None:
        self._metadata = metadata
        self._layout = layout
        self._key = archived_key(layout.topic_id, layout.partition)
        self._writer = writer

    async def read(self) -> tuple[Archived | None, Revision]:
        known = await self._metadata.get(self._key)
        if known is None:
            return None, ABSENT
        return decode_archived(self._key, known.value), known.revision

    async def announce(self, found: Snapshot | None, expected: Revision) -> None:
        """Records that we continue from `found`. From now on our token is known, and the archive is not stopped.

        Raises ManifestFenced if the record has changed since `expected`.
        """
        known, revision = await self.read()
        if revision != expected:
            raise ManifestFenced("what metadata says of this archive changed meanwhile", where=self._key)
        before = known or nothing_archived(LeaderEpoch(self._writer.leader_epoch))
        self._check(before)
        writers = tuple(each for each in before.writers if each != self._writer)[-_MOST_WRITERS:]
        mark = before.manifest if found is None else mark_of(found)
        if not await self._put(
            before._replace(manifest=mark, writers=(*writers, self._writer), stopped=None), revision
        ):
            raise ManifestFenced("what metadata says of this archive changed meanwhile", where=self._key)

    async def admit(self) -> None:
        """Adds our token to the record. Everything else stays, also that the archive is stopped."""
        await self._change(lambda before: before._replace(writers=(*before.writers[-_MOST_WRITERS:], self._writer)))

    async def adopt(self, found: Snapshot, expected: Revision) -> bool:
        """Records, by a person's decision, that `found` is ours, whoever published it. Later manifests of that
        publisher are not.

        Returns whether this began a new leader epoch. That is needed if the publisher's epoch is above ours.
        """
        leader_epoch = LeaderEpoch(self._writer.leader_epoch)
        before, _ = await self.read()
        record = adopted(found, leader_epoch)._replace(encrypted=None if before is None else before.encrypted)
        compares, writes = [Compare(self._key, expected)], [Put(self._key, encode(record))]
        raised = found.version.leader_epoch > leader_epoch
        if raised:
            key = partition_key(self._layout.topic_id, self._layout.partition)
            known = await self._metadata.get(key)
            state = None if known is None else decode_partition(key, known.value, known.revision)
            if known is None or state is None or state.leader_epoch != leader_epoch:
                raise ManifestFenced("another leader epoch has already begun", where=key)
            next_epoch = LeaderEpoch(found.version.leader_epoch + 1)
            compares.append(Compare(key, known.revision))
            writes.append(Put(key, encode(dataclasses.replace(state, leader_epoch=next_epoch))))
        if await self._metadata.transact(compares, writes) is None:
            raise ManifestFenced("what metadata says of this archive changed meanwhile", where=self._key)
        return raised

    async def resume(self) -> None:
        """Records that the archive is no longer stopped. The newest manifest is then judged again."""
        await self._change(lambda before: before._replace(stopped=None))

    async def published(self, snapshot: Snapshot, uploading: str | None) -> None:
        """Records that `snapshot` is the newest manifest, and ours."""

        def change(before: Archived) -> Archived:
            return Archived(
                snapshot.end_offset,
                snapshot.log_start_offset,
                LeaderEpoch(self._writer.leader_epoch),
                uploading,
                mark_of(snapshot),
                (self._writer,),
                encrypted=before.encrypted,
            )

        await self._change(change)

    async def encrypted_from(self, offset: Offset, name: str) -> None:
        """Records that from `offset` on everything is encrypted, now with the key `name`."""

        def change(before: Archived) -> Archived:
            start, names = before.encrypted or (offset, ())
            return before._replace(encrypted=(min(start, offset), names if name in names else (*names, name)))

        await self._change(change)

    async def stop(self, stopped: Stopped) -> None:
        await self._change(lambda before: before._replace(stopped=stopped))

    async def _change(self, change: Callable[[Archived], Archived]) -> None:
        while True:
            known, revision = await self.read()
            before = known or nothing_archived(LeaderEpoch(self._writer.leader_epoch))
            self._check(before)
            after = change(before)
            if after == known or await self._put(after, revision):
                return

    async def _put(self, value: Archived, revision: Revision) -> bool:
        written = await self._metadata.transact([Compare(self._key, revision)], [Put(self._key, encode(value))])
        return written is not None

    def _check(self, known: Archived) -> None:
        newest = max([known.leader_epoch, *(each.leader_epoch for each in known.writers)])
        if newest > self._writer.leader_epoch:
            raise ManifestFenced("a newer leader has recorded its archive", where=self._key)


def mark_of(snapshot: Snapshot) -> ManifestMark:
    return ManifestMark(snapshot.version.leader_epoch, snapshot.version.sequence, snapshot.nonce)


def last_published(recorded: Archived | None) -> Version | None:
    """Returns the newest version that is known to have been published, whether the bucket still has it or not."""
    if recorded is None or recorded.manifest is None:
        return None
    return Version(LeaderEpoch(recorded.manifest.leader_epoch), recorded.manifest.sequence)


def newest_known(recorded: Archived | None, current: Snapshot | None, leader_epoch: LeaderEpoch) -> Archived | None:
    """Returns what metadata says, or, if it is newer, the snapshot `current` that could not be recorded."""
    mark = None if recorded is None else recorded.manifest
    if current is None or (mark is not None and mark[:2] >= current.version):
        return recorded
    before = recorded or nothing_archived(leader_epoch)
    return before._replace(
        end_offset=current.end_offset, log_start_offset=current.log_start_offset, manifest=mark_of(current)
    )


def adopted(snapshot: Snapshot, leader_epoch: LeaderEpoch) -> Archived:
    """Returns a record that continues from this manifest, whoever published it, but not from the publisher's next."""
    return Archived(
        snapshot.end_offset, snapshot.log_start_offset, leader_epoch, None, mark_of(snapshot), (Writer(-1, ""),)
    )


def nothing_archived(leader_epoch: LeaderEpoch) -> Archived:
    return Archived(Offset(0), Offset(0), leader_epoch)
