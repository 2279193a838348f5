"""The leader's answer to proposals: what a compaction rewrote is published, or refused with the reason.

    examined, whole -> manifest with the new in the place of the old -> proposal deleted
                    -> refusal written -> proposal deleted

Examining reads every new object and may take long, so it holds up nothing: only the publish takes the partition's turn,
and compares with the manifest once more. A leader that crashes between two steps finds the proposal again; a deposed
one answers nothing.

Looking costs a LIST, so it is done as often as garbage is looked for, and when somebody asks.
"""

from collections.abc import Callable
from typing import Final

import structlog

from cold_tier import proposals
from cold_tier.errors import CorruptManifest, ReplacementRefused
from cold_tier.reports import Considered
from offloader.partition_archive import PartitionArchive

_log = structlog.get_logger()

MOST_REMOVED: Final = 100_000
"""Objects that wait for their deletion: every manifest lists them. A proposal that comes when there are more, waits."""


async def consider(archive: PartitionArchive, clock: Callable[[], int]) -> list[Considered]:
    """Answer every proposal for a partition whose archive is open. The grace of the old begins at the publish."""
    store, layout = archive.store, archive.layout
    answered = []
    for name, proposal in (await proposals.waiting(store, layout)).items():
        if len(archive.writer.current.removed) > MOST_REMOVED:
            answered.append(
                Considered(layout.partition, name, "waiting", "too many removed objects are not deleted yet")
            )
            continue
        try:
            if isinstance(proposal, CorruptManifest):
                raise ReplacementRefused(proposal.what, where=proposal.where)
            if not await proposals.is_published(archive.manifest, proposal):
                by_key = "compact" in archive.partition.log.config.cleanup_policy
                await proposals.examine(store, archive.manifest, proposal, by_key=by_key)
                await archive.replace(proposal.replacements, clock())
            await archive.ensure_still_leading()
            await store.delete([layout.proposal(name)])
        except ReplacementRefused as refused:
            await archive.ensure_still_leading()
            await proposals.refuse(store, layout, name, str(refused))
            _log.warning("a proposal is refused", partition=str(archive.partition.tp), name=name, why=str(refused))
            answered.append(Considered(layout.partition, name, "refused", str(refused)))
        else:
            count = sum(len(each.old) for each in proposal.replacements)
            _log.info("rewritten segments are published", partition=str(archive.partition.tp), replaced=count)
            answered.append(Considered(layout.partition, name, "published"))
    return answered
