"""The leader's answer to proposals: it publishes what a compaction rewrote, or refuses it with the reason.

    examined completely -> manifest with the new in the place of the old -> proposal deleted
                        -> refusal written -> proposal deleted

Examining reads every new object and may take long, so it delays nothing else: only the publish takes the partition's
turn, and it compares the proposal with the manifest again. A leader that crashes between two steps finds the proposal
again. A deposed leader answers nothing.

Looking for proposals costs a LIST. So it happens as often as garbage is looked for, and when somebody asks.
"""

from collections.abc import Callable
from typing import Final

import structlog

from cold_tier import proposals
from cold_tier.errors import CorruptManifest, ReplacementRefused
from cold_tier.reports import Considered
from offloader.encryption import demand_of
from offloader.partition_archive import PartitionArchive

_log = structlog.get_logger()

MOST_REMOVED: Final = 100_000
"""The most removed objects that may wait for deletion, since every manifest lists them. With more, proposals wait."""


async def consider(archive: PartitionArchive, clock: Callable[[], int]) -> list[Considered]:
    """Answers every proposal for a partition whose archive is open. The grace of old objects begins at the publish."""
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
                demand = demand_of((await archive.record.read())[0])
                await proposals.examine(store, archive.manifest, proposal, by_key=by_key, demand=demand)
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
