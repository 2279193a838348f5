"""How fast each client may produce and fetch. This module only counts, in whole requests.

Each limited client has an account. It refills at the client's rate, up to `BURST_S` seconds' worth. The full size of a
request is subtracted, however large it is. A balance below zero says how long the client must pause until it is zero
again. The effect is that of Kafka's window of samples: bursts pass, and the mean does not exceed the limit.

The caller answers first, with the throttle time in the response, and then does not read from that connection for that
time. No client is limited until a quota is set; until then the cost is one lookup in an empty map.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gateway.principal import ANONYMOUS
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import QuotaEntity
from hot_tier.cluster.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    USER,
    governing_entity,
)

Kind = Literal["produce", "fetch"]

BURST_S: Final = 10
LONGEST_PAUSE_MS: Final = 2**31 - 1
"""The largest value that the response's field can hold."""

MAX_ACCOUNTS: Final = 10_000
"""Clients choose their client ids freely. When there are more accounts than this, full accounts are dropped."""

_QUOTA_NAMES: Final[Mapping[Kind, str]] = {"produce": PRODUCER_BYTE_RATE, "fetch": CONSUMER_BYTE_RATE}


@dataclass(slots=True)
class _Account:
    rate: float
    """Bytes per second."""
    balance: float
    as_of_ms: int

    def charge(self, nbytes: int, now_ms: int) -> int:
        self.refill(now_ms)
        self.balance -= nbytes
        return 0 if self.balance >= 0 else min(LONGEST_PAUSE_MS, math.ceil(-self.balance / self.rate * 1000))

    def refill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self.as_of_ms
        if elapsed_ms > 0:
            self.balance = min(self.rate * BURST_S, self.balance + self.rate * elapsed_ms / 1000)
            self.as_of_ms = now_ms

    @property
    def is_full(self) -> bool:
        return self.balance >= self.rate * BURST_S


_Holder = tuple[Kind, str | None, str | None]


class Quotas:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._limits: Mapping[QuotaEntity, Mapping[str, float]] = dict(image.quotas)
        self._accounts: dict[_Holder, _Account] = {}
        self._holders: dict[tuple[Kind, str, str], _Holder | None] = {}
        image.subscribe(self._image_changed)

    def charge(self, client_id: str, kind: Kind, nbytes: int, now_ms: int, user: str = ANONYMOUS) -> int:
        """Subtracts `nbytes` from the client's account. Returns how many milliseconds the client must pause."""
        if not self._limits:
            return 0
        caller = (kind, user, client_id)
        if caller not in self._holders:
            self._admit(caller, now_ms)
        holder = self._holders[caller]
        return 0 if holder is None else self._accounts[holder].charge(nbytes, now_ms)

    def _admit(self, caller: tuple[Kind, str, str], now_ms: int) -> None:
        """Finds the limit that applies. Clients under a limit that names only their user share one account."""
        kind, user, client_id = caller
        if len(self._holders) >= MAX_ACCOUNTS:
            self._drop_full(now_ms)
        entity = governing_entity(self._limits, _QUOTA_NAMES[kind], user, client_id)
        if entity is None:
            self._holders[caller] = None
            return
        named = {part for part, _ in entity.parts}
        holder = (kind, user if USER in named else None, client_id if CLIENT_ID in named else None)
        self._holders[caller] = holder
        rate = self._limits[entity][_QUOTA_NAMES[kind]]
        account = self._accounts.get(holder)
        if account is None or account.rate != rate:
            self._accounts[holder] = _Account(rate, rate * BURST_S, now_ms)

    def _drop_full(self, now_ms: int) -> None:
        for holder, account in tuple(self._accounts.items()):
            account.refill(now_ms)
            if account.is_full:
                del self._accounts[holder]
        self._holders = {
            caller: holder
            for caller, holder in self._holders.items()
            if holder is not None and holder in self._accounts
        }

    def _image_changed(self, change: ImageChange) -> None:
        if not change.quotas:
            return
        self._limits = dict(self._image.quotas)
        self._holders.clear()
