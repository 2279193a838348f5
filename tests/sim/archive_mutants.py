"""Mistakes in archiving that the checkers must catch, each a rule of production code left out."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.store import Buffer
from hot_tier.ids import Offset
from offloader import plan
from offloader.partition_archive import PartitionArchive
from offloader.plan import Reach
from tests.sim.archive import SETTINGS
from tests.sim.rules import RULES, Rules


class _Everything:
    end_offset = Offset(2**62)

    def __init__(self, archived: Reach) -> None:
        self.log_start_offset = archived.log_start_offset


def _drop_what_is_not_archived(config: Any, segments: Any, archived: Reach, now_ms: int) -> Offset | None:
    return plan.local_drop_offset(config, segments, _Everything(archived), now_ms)


async def _put_over(store: Bucket, key: str, data: Buffer) -> bool:
    await store.put(key, data)
    return True


async def _always(writer: ManifestWriter) -> bool:
    return True


class _LeavesUploads(PartitionArchive):
    async def _remove_abandoned(self) -> None:
        self._name(None)


class _NamesNoUpload(PartitionArchive):
    async def _record_archived(self) -> None:
        await self.record.published(self.writer.current, None)


class _TrustsWhatItFinds(PartitionArchive):
    async def _judge(self, found: Any, recorded: Any) -> None:
        pass


def _never(key: str, snapshot: Snapshot) -> bool:
    return False


def _breaks(**names: object) -> Rules:
    return replace(RULES, breaks={"offloader.partition_archive": names})


def _archive(kind: type[PartitionArchive]) -> Rules:
    return replace(RULES, breaks={"offloader.offloader": {"PartitionArchive": kind}})


_WRITER: Final = "cold_tier.manifest.writer.ManifestWriter"

MUTANTS: Final[Mapping[str, Rules]] = MappingProxyType(
    {
        "local segments go before they are published": _breaks(local_drop_offset=_drop_what_is_not_archived),
        "objects go without a grace period": replace(RULES, offload=replace(SETTINGS, delete_grace_ms=0)),
        "a manifest is published without a comparison": replace(
            RULES,
            breaks={
                "cold_tier.objects.bucket.Bucket": {"put_if_absent": _put_over},
                _WRITER: {"_is_newest": _always},
            },
        ),
        "a deposed leader collects what it does not know": replace(
            RULES,
            breaks={
                "offloader.partition_archive": {"may_be_newer": _never},
                _WRITER: {"still_newest": _always},
            },
        ),
        "a takeover leaves the other's upload": _archive(_LeavesUploads),
        "metadata does not know of uploads": _archive(_NamesNoUpload),
        "an older manifest is gone on from": _archive(_TrustsWhatItFinds),
    }
)
