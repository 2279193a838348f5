"""What a bucket holds, found from the bucket alone: topics, their partitions, their own descriptions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from cold_tier.descriptions import TopicDescription, read_description
from cold_tier.errors import CorruptObject
from cold_tier.layout import ROOT, PartitionLayout, parse_topic_folder, topic_descriptions, topic_folder
from cold_tier.objects.retrying import RetryingStore
from hot_tier.ids import PartitionId


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    name: str
    id: UUID
    layouts: tuple[PartitionLayout, ...]
    """Of the partitions that have a manifest."""
    description_key: str | None
    """The newest description; None where there is none."""
    bare: tuple[PartitionLayout, ...] = ()
    """Of the partitions that have indexes or pages, and no manifest."""


async def find_topics(store: RetryingStore, topic: str | None = None) -> list[ArchivedTopic]:
    """Every topic with something archived, in the order of names; only `topic`, in all its lives, if given."""
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
            # Names count down: the least is the newest.
            descriptions[key] = min(descriptions.get(key, info.key), info.key)
        elif folder[0].isdecimal() and folder[1:2] == ["manifest"]:
            found.add(int(folder[0]))
        elif folder[0].isdecimal() and folder[1:2] in (["index"], ["pages"]):
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


async def unclaimed_rows(store: RetryingStore, topics: Sequence[ArchivedTopic]) -> list[str]:
    """Folders of topics that have rows, and of which nothing else is there."""
    known = {f"topic={topic.name}" for topic in topics}
    return sorted(f"{name}/" for name in await store.folders("") if name.startswith("topic=") and name not in known)


async def _find_lives(store: RetryingStore, topic: str) -> list[ArchivedTopic]:
    """Folder by folder: what else the bucket holds, however much, is not listed."""
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


async def _first_key(store: RetryingStore, folder: str) -> str | None:
    """Names count down: the first is the newest."""
    first = await anext(aiter(store.list(folder)), None)
    return None if first is None else first.key


async def describe(store: RetryingStore, topic: ArchivedTopic) -> TopicDescription:
    """What the newest description says; CorruptObject where there is none or it cannot be read."""
    where = f"{store.url}{topic.description_key or topic.name}"
    if topic.description_key is None:
        raise CorruptObject("the bucket has no description of this topic", where=where)
    description = read_description(await store.get(topic.description_key), where)
    if (description.name, description.id) != (topic.name, topic.id):
        raise CorruptObject("describes another topic than its name says", where=where)
    return description


async def newest_lives(store: RetryingStore, topics: list[ArchivedTopic]) -> AsyncIterator[TopicDescription]:
    """Of topics deleted and made again under one name, the one made last."""
    lives: dict[str, TopicDescription] = {}
    for description in await asyncio.gather(*(describe(store, topic) for topic in topics)):
        known = lives.get(description.name)
        if known is None or known.created_ms < description.created_ms:
            lives[description.name] = description
    for description in lives.values():
        yield description
