"""Proposals: a writer that is not the leader asks the leader to publish segments that it rewrote.

    objects uploaded and read back -> proposal placed -> [the leader looks] -> published, proposal deleted
                                                                            -> `.refused` with reason, proposal deleted

Only the leader publishes, so that a partition's history has one writer. The leader trusts nothing: `examine` compares
the proposal with the manifest and reads every new object. While a proposal waits, its objects are not collected as
orphans (`named`). Publishing a proposal twice is harmless: once its new segments are in the manifest, it is done.
"""

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from cold_tier.errors import CorruptManifest, CorruptObject, ObjectMissing, ReplacementRefused
from cold_tier.format.encryption import Demand
from cold_tier.format.footer import encrypted_columns
from cold_tier.format.index import read_index
from cold_tier.format.open import prove_aside
from cold_tier.format.read import SegmentReader
from cold_tier.format.schema import row_schema
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.codec import MAX_BODY_BYTES, read_proposal, write_proposal
from cold_tier.manifest.model import SegmentEntry
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.manifest.replacement import Proposal, judge
from cold_tier.objects.bucket import Bucket
from cold_tier.upload import verify_segment


@dataclass(frozen=True, slots=True)
class Answer:
    """What happened to a proposal."""

    outcome: Literal["waiting", "published", "refused"]
    reason: str = ""


async def place(store: Bucket, proposal: Proposal) -> str:
    """Hands the proposal to the leader. Returns the name under which the leader answers."""
    name = uuid.uuid4().hex
    await store.put(proposal.layout.proposal(name), write_proposal(proposal))
    return name


async def waiting(store: Bucket, layout: PartitionLayout) -> dict[str, Proposal | CorruptManifest]:
    """Returns the waiting proposals by name, with one LIST. A proposal that cannot be read is returned as its error."""
    sizes = {
        name: info.size
        async for info in store.list(layout.proposals_folder)
        if (name := layout.parse_proposal(info.key)) is not None
    }
    found: dict[str, Proposal | CorruptManifest] = {}
    for name, size in sizes.items():
        where = f"{store.url}{layout.proposal(name)}"
        try:
            if size > MAX_BODY_BYTES:
                raise CorruptManifest(f"it has {size} bytes and is larger than any proposal", where=where)
            proposal = read_proposal(await store.get(layout.proposal(name)), where)
            if proposal.layout != layout:
                raise CorruptManifest(f"is for {proposal.layout}, not for the partition in its name", where=where)
            found[name] = proposal
        except ObjectMissing:
            pass  # The leader answered it after the LIST.
        except CorruptManifest as error:
            found[name] = error
    return found


async def named(store: Bucket, layout: PartitionLayout) -> set[str]:
    """Returns the objects that waiting proposals need. None of them is an orphan."""
    return {
        key
        for proposal in (await waiting(store, layout)).values()
        if isinstance(proposal, Proposal)
        for replacement in proposal.replacements
        for segment in replacement.new
        for key in segment.objects(layout)
    }


async def refuse(store: Bucket, layout: PartitionLayout, name: str, reason: str) -> None:
    await store.put(layout.refusal(name), orjson.dumps({"reason": reason}))
    await store.delete([layout.proposal(name)])


async def answer(store: Bucket, layout: PartitionLayout, name: str, proposal: Proposal) -> Answer:
    """Returns what has happened to the proposal so far. A refusal that the caller does not delete is collected."""
    if await store.head(layout.proposal(name)) is not None:
        return Answer("waiting")
    try:
        found = orjson.loads(await store.get(layout.refusal(name)))
        return Answer("refused", str(found["reason"]))
    except ObjectMissing:
        pass
    except (ValueError, KeyError, TypeError):
        return Answer("refused", "for a reason that cannot be read")
    snapshot = await load_newest(store, layout)
    if snapshot is not None and await is_published(Manifest(snapshot, PageCache(store)), proposal):
        return Answer("published")
    return Answer("refused", "it is gone, and so are its segments: they expired, or were rewritten again")


async def is_published(manifest: Manifest, proposal: Proposal) -> bool:
    """Returns whether all new segments of the proposal are in the manifest."""
    for replacement in proposal.replacements:
        found = manifest.segments(replacement.base_offset, replacement.end_offset)
        if {segment.name for segment in replacement.new} - {segment.name async for segment in found}:
            return False
    return True


async def examine(
    store: Bucket, manifest: Manifest, proposal: Proposal, *, by_key: bool, demand: Demand | None = None
) -> None:
    """Raises ReplacementRefused unless the proposal fits the manifest and every new object is complete and as
    described.

    `by_key` says that the topic is compacted by key, so that there may be fewer rows. `demand` is None if the topic is
    not encrypted. Reads all of the new objects.
    """
    layout = proposal.layout
    for replacement in proposal.replacements:
        held = manifest.segments(replacement.base_offset, replacement.end_offset)
        problems = judge(replacement, [segment async for segment in held], by_key=by_key)
        if problems:
            raise ReplacementRefused("; ".join(problems), where=f"{layout.topic}-{layout.partition}")
    for segment in (segment for replacement in proposal.replacements for segment in replacement.new):
        try:
            await verify_segment(store, layout, segment)
            key = layout.index(segment.name)
            index = read_index(await store.get(key), f"{store.url}{key}")
            where = f"{store.url}{layout.rows(segment.name)}"
            reader = await asyncio.to_thread(SegmentReader.open, index, where, store.keys)
            if demand is not None:
                demand.check(segment, where)
                await asyncio.to_thread(reader.unlock)
            await prove_aside(store, layout, segment, index)
        except (ObjectMissing, CorruptObject) as error:
            raise ReplacementRefused(error.what, where=error.where) from error
        problems = disagreements(segment, reader)
        if problems:
            raise ReplacementRefused("; ".join(problems), where=reader.where)


def disagreements(segment: SegmentEntry, reader: SegmentReader) -> list[str]:
    """Returns where the manifest entry, the index and the Parquet footer differ. None of the three is trusted."""
    index, metadata = reader.index, reader.metadata
    problems = []
    if reader.master_key != segment.master_key:
        problems.append(f"it is encrypted with {reader.master_key!r}, not with {segment.master_key!r}")
    if (index.base_offset, index.end_offset, index.epochs) != (
        segment.base_offset,
        segment.end_offset,
        segment.epochs,
    ):
        problems.append(f"the index covers [{index.base_offset}, {index.end_offset})")
    if index.rows_bytes != segment.rows_bytes:
        problems.append(f"the index is of {index.rows_bytes} bytes")
    if 0 in encrypted_columns(index.footer, reader.where):
        return [*problems, "the file encrypts its offsets"]
    if not metadata.schema.to_arrow_schema().equals(row_schema()):
        return [*problems, "the file has other columns than rows have"]
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if [group.rows for group in index.row_groups] != rows or sum(rows) != segment.rows:
        problems.append(f"the file holds {sum(rows)} rows, not {segment.rows}")
        return problems
    for number, group in enumerate(index.row_groups):
        offsets: Any = metadata.row_group(number).column(0).statistics
        if offsets is None or not (group.first_offset <= offsets.min and offsets.max < group.end_offset):
            problems.append(f"row group {number} holds other offsets than the index says")
    return problems
