"""Pins: a job that reads the archive suspends a topic's retention until it is done, or until the pin expires.

While a topic has a valid pin, the leader lets nothing of it expire, and deletes no object that a manifest has removed
and no superseded manifest. A job places its pin before it reads the manifest. What that manifest names then stays,
because the leader looks for pins twice: before it publishes an expiry, and a grace period later, before it deletes.

An expired pin has no effect. The next caller that places a pin deletes it.
"""

import asyncio
import re
from dataclasses import asdict, dataclass
from uuid import UUID

from cold_tier import layout
from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.objects.bucket import Bucket
from cold_tier.sealed_json import read_sealed, write_sealed
from hot_tier.errors import SettingsError

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class Pin:
    name: str
    created_ms: int
    expires_ms: int


async def place(store: Bucket, topic: str, topic_id: UUID, name: str, now_ms: int, hold_ms: int) -> Pin:
    """Places a pin that holds from `now_ms` for `hold_ms`. It replaces a pin of the same name."""
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{name!r} cannot name a pin", hint="use letters, digits, dots, dashes and underscores")
    if hold_ms <= 0:
        raise SettingsError(
            "the time for which a pin holds must be above 0", hint="say for how long, such as 12h or 7d"
        )
    expired = [pin.name for pin in await _all(store, topic, topic_id) if pin.expires_ms <= now_ms]
    await store.delete([layout.pin(topic, topic_id, each) for each in expired])
    pin = Pin(name, now_ms, now_ms + hold_ms)
    await store.put(layout.pin(topic, topic_id, name), write_sealed(asdict(pin)))
    return pin


async def release(store: Bucket, topic: str, topic_id: UUID, name: str) -> bool:
    """Deletes a pin, even one that cannot be read. Returns False if there is no pin of this name."""
    key = layout.pin(topic, topic_id, name)
    there = await store.head(key) is not None
    if there:
        await store.delete([key])
    return there


async def held(store: Bucket, topic: str, topic_id: UUID, now_ms: int) -> list[Pin]:
    """Returns the pins that hold the topic now. Raises an error for a pin that cannot be read, because it may hold."""
    return [pin for pin in await _all(store, topic, topic_id) if pin.expires_ms > now_ms]


async def _all(store: Bucket, topic: str, topic_id: UUID) -> list[Pin]:
    keys = [info.key async for info in store.list(layout.pins_folder(topic, topic_id))]
    found = await asyncio.gather(*(_read(store, topic, topic_id, key) for key in keys))
    return [pin for pin in found if pin is not None]


async def _read(store: Bucket, topic: str, topic_id: UUID, key: str) -> Pin | None:
    try:
        data = await store.get(key)
    except ObjectMissing:
        return None
    try:
        fields = read_sealed(data)
        if layout.pin(topic, topic_id, fields["name"]) != key:
            raise ValueError(f"it is the pin {fields['name']!r}")
        return Pin(fields["name"], int(fields["created_ms"]), int(fields["expires_ms"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(
            f"this pin cannot be read: {error}", where=f"{store.url}{key}", hint="delete it, or place it anew"
        ) from error
