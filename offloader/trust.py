"""Decides whether the archive may continue from the newest manifest in the bucket. One decision, without I/O.

Metadata knows which manifest was published last, and the tokens under which others may have been published since: a
leader writes its token there before it publishes anything. The bucket has the newest manifest, with the token of its
publisher. The log knows where the local disk begins. The three must have the same history. The first row that fits
decides:

    newest in the bucket                               verdict
    -------------------------------------------------  ----------------------------------------------------------------
    none, nothing was archived, all is local           NEW          an archive begins
    none                                               WENT_BACK    all manifests are gone
    below the recorded version                         WENT_BACK    the bucket was put back to an older state
    the recorded one                                   TRUSTED      (*)
    by a writer that metadata does not know:
        nobody is named, metadata names nobody either  TRUSTED      (*) version 0.1 wrote both
        another cluster or data directory              OTHER_OWNER
        this cluster and data directory, or no name    OTHER_COPY   the directory was copied, or is an older copy
    the recorded version, but not the recorded one     WENT_BACK    went back, and was continued from there
    by a known writer of a later epoch than ours       DEPOSED      another broker of this cluster leads
    by a known writer                                  TRUSTED      (*) published but not recorded: a crash in between

    (*) WENT_BACK if it ends below the recorded end, or if readers would miss offsets between its end and the start
        of the local log.

WENT_BACK ends by itself when the bucket is put right. OTHER_OWNER and OTHER_COPY stay until a person decides: if two
writers continue one chain, each has records at the same offsets that the other does not have.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cold_tier.errors import ArchiveStopped, ForeignManifest, ManifestWentBack
from cold_tier.layout import PartitionLayout, Version
from cold_tier.manifest.model import Owner, Snapshot
from hot_tier.cluster.model import Archived, Stopped
from hot_tier.ids import LeaderEpoch


class Verdict(StrEnum):
    NEW = "new"
    TRUSTED = "trusted"
    DEPOSED = "deposed"
    WENT_BACK = "went-back"
    OTHER_OWNER = "other-owner"
    OTHER_COPY = "other-copy"


FOR_GOOD: Final = frozenset({Verdict.OTHER_OWNER, Verdict.OTHER_COPY})


@dataclass(frozen=True, slots=True)
class Local:
    """Where a partition's log starts: for readers, and on the local disk."""

    log_start_offset: int
    local_start_offset: int


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    what: str = ""
    """What was found, as a text. Empty if all is well."""

    @property
    def stops(self) -> bool:
        return self.verdict not in (Verdict.NEW, Verdict.TRUSTED, Verdict.DEPOSED)


def judge(
    found: Snapshot | None, recorded: Archived | None, local: Local, ours: Owner, leader_epoch: LeaderEpoch
) -> Judgement:
    gap = _gap(found, local)
    if found is None:
        if gap or (recorded is not None and recorded.end_offset > recorded.log_start_offset):
            through = "" if recorded is None else f", and the partition was archived through offset {_last(recorded)}"
            return Judgement(Verdict.WENT_BACK, f"there is no manifest any more{through}{gap}")
        return Judgement(Verdict.NEW)
    mark = None if recorded is None else recorded.manifest
    version = tuple(found.version)
    if mark is not None and found.version < Version(LeaderEpoch(mark.leader_epoch), mark.sequence):
        what = f"the newest manifest is {version}, but {(mark.leader_epoch, mark.sequence)} was published: "
        what += f"archived through offset {found.end_offset - 1}{_was(recorded)}"
        return Judgement(Verdict.WENT_BACK, what + gap)
    is_recorded = mark is not None and (*version, found.nonce) == tuple(mark)
    if not is_recorded:
        stranger = _stranger(found, recorded, ours)
        if stranger is not None:
            return stranger
        if mark is not None and version == (mark.leader_epoch, mark.sequence):
            return Judgement(Verdict.WENT_BACK, f"manifest {version} is another one than was published{gap}")
        if found.version.leader_epoch > leader_epoch:
            return Judgement(Verdict.DEPOSED)
    if gap or (recorded is not None and found.end_offset < recorded.end_offset):
        what = f"the newest manifest is archived through offset {found.end_offset - 1}"
        return Judgement(Verdict.WENT_BACK, f"{what}{_was(recorded)}{gap}")
    return Judgement(Verdict.TRUSTED)


def is_of(found: Snapshot, ours: Owner) -> bool:
    """Returns whether the manifest was published in this cluster, or does not name its publisher."""
    return found.owner is None or (found.owner.cluster, found.owner.directory) == (ours.cluster, ours.directory)


def stopped_error(stopped: Stopped, layout: PartitionLayout, where: str) -> ArchiveStopped:
    """Returns the error for every caller that is refused because the archive is stopped."""
    of = f"{layout.topic} {layout.partition}"
    if stopped.why in FOR_GOOD:
        return ForeignManifest(
            stopped.what,
            where=where,
            hint="give this broker a bucket or a prefix of its own; or stop the other one, and "
            f"`tierlog archive take-over {of}`",
        )
    return ManifestWentBack(
        stopped.what,
        where=where,
        hint="put the newer state of the bucket back; or take up what is still there with "
        f"`tierlog archive recover {of}`",
    )


def missing(found: Snapshot | None, local: Local) -> tuple[int, int] | None:
    """Returns the offsets that readers may ask for but that neither the manifest nor the local disk has."""
    start = local.log_start_offset if found is None else max(found.end_offset, local.log_start_offset)
    return (start, local.local_start_offset) if start < local.local_start_offset else None


def _stranger(found: Snapshot, recorded: Archived | None, ours: Owner) -> Judgement | None:
    known = {writer.token for writer in recorded.writers} if recorded is not None else set()
    owner = found.owner
    if owner is None:
        if not known:
            return None
        what = f"manifest {tuple(found.version)} does not say who published it, and it was not this broker"
        return Judgement(Verdict.OTHER_COPY, what)
    if owner.writer in known:
        return None
    what = f"manifest {tuple(found.version)} was published by "
    if not is_of(found, ours):
        return Judgement(Verdict.OTHER_OWNER, f"{what}{owner}; this is {ours}")
    return Judgement(
        Verdict.OTHER_COPY,
        f"{what}another copy of this data directory or its metadata, or this one is an older copy ({owner})",
    )


def _gap(found: Snapshot | None, local: Local) -> str:
    offsets = missing(found, local)
    return "" if offsets is None else f"; offsets {offsets[0]} to {offsets[1] - 1} are not on the local disk either"


def _was(recorded: Archived | None) -> str:
    return "" if recorded is None else f", before it was {_last(recorded)}"


def _last(recorded: Archived) -> int:
    return recorded.end_offset - 1
