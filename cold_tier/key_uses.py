"""Which topics of a bucket use which keys: by their settings, and by what their manifests name.

A manifest or description that cannot be read raises its error: then nobody can say which keys are still needed.
"""

from dataclasses import dataclass
from typing import Final

from cold_tier.inventory import ArchivedTopic, describe, find_topics
from cold_tier.keys.master import name_of
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.bucket import Bucket

_SETTING: Final = "archive.encryption.key"


@dataclass(frozen=True, slots=True)
class KeyUse:
    """One topic, with all lives of its name."""

    topic: str
    setting: str
    """The key that new objects get, or an empty text."""
    master_keys: frozenset[str]
    segments: int
    """The number of its encrypted segments."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(map(name_of, self.master_keys)) | ({self.setting} if self.setting else frozenset())


async def key_uses(store: Bucket) -> list[KeyUse]:
    found: dict[str, KeyUse] = {}
    for life in await find_topics(store):
        use = await _use(store, life)
        before = found.get(life.name)
        if before is not None:
            use = KeyUse(
                use.topic,
                use.setting or before.setting,
                use.master_keys | before.master_keys,
                use.segments + before.segments,
            )
        found[life.name] = use
    return list(found.values())


async def _use(store: Bucket, life: ArchivedTopic) -> KeyUse:
    setting = (await describe(store, life)).config.get(_SETTING, "") if life.description_key else ""
    keys: set[str] = set()
    segments = 0
    for layout in life.layouts:
        snapshot = await load_newest(store, layout)
        if snapshot is None:
            continue
        manifest = Manifest(snapshot, PageCache(store))
        async for segment in manifest.segments(snapshot.start_offset, snapshot.end_offset):
            if segment.master_key:
                keys.add(segment.master_key)
                segments += 1
    return KeyUse(life.name, setting, frozenset(keys), segments)
