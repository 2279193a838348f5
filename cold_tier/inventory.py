"""What a bucket holds, found from the bucket alone: topics, their partitions, their own descriptions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from cold_tier.descriptions import TopicDescription, read_description
from cold_tier.errors import CorruptObject
from cold_tier.layout import ROOT, PartitionLayout, parse_topic_folder, topic_descriptions, topic_folder
from cold_tier.objects.bucket import Bucket
from hot_tier.ids import PartitionId


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    name: str
    id: UUID
    layouts: tuple[PartitionLayout, ...]
    """The partitions that have a manifest."""
    description_key: str | None
    """The key of the newest description, or None if there is none."""
    bare: tuple[PartitionLayout, ...] = ()
    """The partitions that have objects of segments, or pages, but no manifest."""


async def find_topics(store: Bucket, topic: str | None = None) -> list[ArchivedTopic]:
    """Returns every archived topic, in the order of names. With `topic`: only this name, with all its topic ids."""
    if topic is not None:
        return await _find_lives(store, topic)
    partitions: dict[tuple[str, UUID], set[int]] = {}
    objects: dict[tuple[str, UUID], set[int]] = {}
    descriptions: dict[tuple[str, UUID], str] = {}
    async for info in store.list(ROOT):
        parsed = parse_topic_folder(info.key)
        if parsed is None:
            continue
        key, folder = (parsed[0], parsed[1]), parsed[2].split("/")
        found = partitions.setdefault(key, set())
        if folder[0] == "topic":
            # The versions in names count down, so the smallest name is the newest.
            descriptions[key] = min(descriptions.get(key, info.key), info.key)
        elif folder[0].isdecimal() and folder[1:2] == ["manifest"]:
            found.add(int(folder[0]))
        elif folder[0].isdecimal() and folder[1:2] in (["index"], ["aside"], ["pages"]):
            objects.setdefault(key, set()).add(int(folder[0]))
    return [
        ArchivedTopic(
            *key,
            _layouts(*key, numbers),
            descriptions.get(key),
            _layouts(*key, objects.get(key, set()) - numbers),
        )
        for key, numbers in sorted(partitions.items())
    ]


def _layouts(name: str, topic_id: UUID, numbers: set[int]) -> tuple[PartitionLayout, ...]:
    return tuple(PartitionLayout(name, topic_id, PartitionId(number)) for number in sorted(numbers))


async def unclaimed_rows(store: Bucket, topics: Sequence[ArchivedTopic]) -> list[str]:
    """Returns the folders of topics that have rows in the bucket and nothing else."""
    known = {f"topic={topic.name}" for topic in topics}
    return sorted(f"{name}/" for name in await store.folders("") if name.startswith("topic=") and name not in known)


async def _find_lives(store: Bucket, topic: str) -> list[ArchivedTopic]:
    """Lists the topic's folders alone, so that the cost does not depend on what else the bucket holds."""
    lives = []
    for name in sorted(await store.folders(ROOT)):
        parsed = parse_topic_folder(f"{ROOT}{name}/")
        if parsed is None or parsed[0] != topic:
            continue
        topic_id = parsed[1]
        numbers = [each for each in await store.folders(topic_folder(topic, topic_id)) if each.isdecimal()]
        layouts = [PartitionLayout(topic, topic_id, PartitionId(number)) for number in sorted(map(int, numbers))]
        published = await asyncio.gather(*(_first_key(store, layout.manifest_folder) for layout in layouts))
        description = await _first_key(store, topic_descriptions(topic, topic_id))
        held = tuple(layout for layout, key in zip(layouts, published, strict=True) if key is not None)
        rest = [layout for layout, key in zip(layouts, published, strict=True) if key is None]
        indexed = await asyncio.gather(*(_first_key(store, layout.index_folder) for layout in rest))
        bare = tuple(layout for layout, key in zip(rest, indexed, strict=True) if key is not None)
        if held or bare or description is not None:
            lives.append(ArchivedTopic(topic, topic_id, held, description, bare))
    return lives


async def _first_key(store: Bucket, folder: str) -> str | None:
    """Returns the first key of the folder, or None. Versions in names count down, so the first is the newest."""
    first = await anext(aiter(store.list(folder)), None)
    return None if first is None else first.key


async def describe(store: Bucket, topic: ArchivedTopic) -> TopicDescription:
    """Returns the topic's newest description. Raises CorruptObject if there is none or if it cannot be read."""
    where = f"{store.url}{topic.description_key or topic.name}"
    if topic.description_key is None:
        raise CorruptObject("the bucket has no description of this topic", where=where)
    description = read_description(await store.get(topic.description_key), where)
    if (description.name, description.id) != (topic.name, topic.id):
        raise CorruptObject("this description is of another topic than its name says", where=where)
    return description


async def newest_lives(store: Bucket, topics: list[ArchivedTopic]) -> AsyncIterator[TopicDescription]:
    """Yields one topic per name. A name that was deleted and made again gives the topic that was made last."""
    lives: dict[str, TopicDescription] = {}
    for description in await asyncio.gather(*(describe(store, topic) for topic in topics)):
        known = lives.get(description.name)
        if known is None or known.created_ms < description.created_ms:
            lives[description.name] = description
    for description in lives.values():
        yield description
