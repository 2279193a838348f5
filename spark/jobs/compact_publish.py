"""Publishes rewritten segments: by a proposal to the leader, or directly if no broker runs."""

from typing import Final

from cold_tier import proposals
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.manifest.replacement import Proposal
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.bucket import Bucket
from cold_tier.proposals import Answer
from hot_tier.clock import wall_ms
from hot_tier.errors import TierlogError
from spark.gateway import Gateway, GatewayUnavailable, consider_proposals

_LEADER_LOOKS: Final = "the leader publishes it when it next looks, within archive.garbage_check_ms"


async def propose(store: Bucket, proposal: Proposal, gateway: Gateway | None) -> Answer:
    """Hands the proposal to the leader. With a gateway, asks for an answer now."""
    layout = proposal.layout
    name = await proposals.place(store, proposal)
    if gateway is None:
        return Answer("waiting", _LEADER_LOOKS)
    try:
        consider_proposals(gateway, layout.topic, layout.partition)
    except GatewayUnavailable as error:
        return Answer("waiting", f"{_LEADER_LOOKS}; it could not be asked: {error}")
    answer = await proposals.answer(store, layout, name, proposal)
    if answer.outcome == "refused":
        await store.delete([layout.refusal(name)])
    return Answer("waiting", _LEADER_LOOKS) if answer.outcome == "waiting" else answer


async def publish_offline(store: Bucket, proposal: Proposal, *, by_key: bool) -> Answer:
    """Publishes under the last leader's epoch while no broker runs. The next leader's manifests have a higher one."""
    layout = proposal.layout
    found = await load_newest(store, layout)
    assert found is not None, "it was read before"
    try:
        await proposals.examine(store, Manifest(found, PageCache(store)), proposal, by_key=by_key)
        now_ms = wall_ms()
        writer = await ManifestWriter.open(store, layout, found.version.leader_epoch, found.log_start_offset, now_ms)
        await writer.replace(proposal.replacements, now_ms)
    except TierlogError as error:
        if error.retriable:
            raise
        return Answer("refused", str(error))
    return Answer("published")
