"""Many deadlines, most of which are postponed again and again: above all the sessions of members.

To postpone a deadline costs one dict store: the heap keeps the earlier entry, and when that entry is due, the new
deadline is looked up. So ten thousand heartbeats a second touch the heap only once per session.

Invariants: every key with a deadline has a heap entry at or before it. A key may have several entries; only the one
whose time is in `_queued` counts, the others are skipped. The heap is rebuilt when most entries belong to cleared keys.
"""

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._entries = count()

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: K, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def clear(self, key: K) -> None:
        self._deadlines.pop(key, None)
        if len(self._heap) > 2 * len(self._deadlines) + 1024:
            self._heap.clear()
            self._queued.clear()
            for live, deadline_ms in self._deadlines.items():
                self._push(live, deadline_ms)

    def next_ms(self) -> int | None:
        """Returns when to call `take_due` next: at or before the earliest deadline."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[K]:
        """Returns the keys whose deadline is over, earliest first, and clears their deadlines."""
        due: list[K] = []
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > queued_ms:
                self._push(key, deadline_ms)
            else:
                del self._deadlines[key]
                due.append(key)
        return due

    def _push(self, key: K, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, next(self._entries), key))
