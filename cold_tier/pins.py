"""Pins: a job that reads the archive holds a topic's retention until it is done, or until the pin expires.

While a pin holds, the leader lets nothing of the topic expire and deletes nothing that a manifest has let go of, nor
any superseded manifest. A pin is placed before the manifest is read: what that manifest names then stays, because the
leader looks for pins both before it publishes an expiry and, a grace period later, before it deletes.

An expired pin is as good as none; whoever places the next one sweeps it away.
"""

import asyncio
import re
from dataclasses import asdict, dataclass
from uuid import UUID

from cold_tier import layout
from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.objects.retrying import RetryingStore
from cold_tier.sealed_json import read_sealed, write_sealed
from hot_tier.errors import SettingsError

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class Pin:
    name: str
    created_ms: int
    expires_ms: int


async def place(store: RetryingStore, topic: str, topic_id: UUID, name: str, now_ms: int, hold_ms: int) -> Pin:
    """Hold the topic from `now_ms` on for `hold_ms`; a pin of that name is placed anew."""
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{name!r} cannot name a pin", hint="use letters, digits, dots, dashes and underscores")
    if hold_ms <= 0:
        raise SettingsError("a pin holds for some time", hint="say for how long, as 12h or 7d")
    expired = [pin.name for pin in await _all(store, topic, topic_id) if pin.expires_ms <= now_ms]
    await store.delete([layout.pin(topic, topic_id, each) for each in expired])
    pin = Pin(name, now_ms, now_ms + hold_ms)
    await store.put(layout.pin(topic, topic_id, name), write_sealed(asdict(pin)))
    return pin


async def release(store: RetryingStore, topic: str, topic_id: UUID, name: str) -> bool:
    """Take a pin away; False: there was none of this name. One that cannot be read goes too."""
    key = layout.pin(topic, topic_id, name)
    there = await store.head(key) is not None
    if there:
        await store.delete([key])
    return there


async def held(store: RetryingStore, topic: str, topic_id: UUID, now_ms: int) -> list[Pin]:
    """The pins that hold the topic now. One that cannot be read is an error: it may hold."""
    return [pin for pin in await _all(store, topic, topic_id) if pin.expires_ms > now_ms]


async def _all(store: RetryingStore, topic: str, topic_id: UUID) -> list[Pin]:
    keys = [info.key async for info in store.list(layout.pins_folder(topic, topic_id))]
    found = await asyncio.gather(*(_read(store, topic, topic_id, key) for key in keys))
    return [pin for pin in found if pin is not None]


async def _read(store: RetryingStore, topic: str, topic_id: UUID, key: str) -> Pin | None:
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
