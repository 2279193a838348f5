"""Cluster metadata as etcd keeps it: values with revisions, compare-and-swap, leases, and watches that may lag.

Keys and values are the real ones, with the revision filled in as decoding does; `metadata` shows production code the
bytes. During an outage requests are lost, watches stand still and no lease runs out; afterwards every lease has its
full time again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hot_tier.cluster import model
from hot_tier.cluster.model import BrokerInfo, PartitionState
from hot_tier.cluster.store import ABSENT, Event, KeyValue, Range, Revision
from hot_tier.ids import TopicId
from tests.sim.network import Network, Reply
from tests.sim.world import Process, World

STORE: Final = "store"
CONTROLLER: Final = model.CONTROLLER_KEY
TOPIC: Final = "topic"
TOPIC_ID: Final = TopicId(int=7)
REFUSED: Final = "refused"
GONE: Final = "gone"


def partition_key(partition: int) -> str:
    return model.partition_key(TOPIC_ID, partition)


@dataclass(frozen=True)
class Transaction:
    compares: Sequence[tuple[str, Revision]]
    key: str
    value: Any
    lease: int | None = None
    also: Sequence[tuple[str, Any]] = ()
    """More keys and values, without a lease."""


@dataclass
class _Lease:
    ttl_ms: float
    expires_ms: float
    keys: set[str] = field(default_factory=set)


@dataclass
class _Watch:
    process: Process
    deliver: Callable[[list[list[Event]]], None]
    seen: int
    planned: bool = False


class Store(Process):
    def __init__(self, world: World, network: Network) -> None:
        super().__init__(world, STORE)
        self.down = False
        self.values: dict[str, Any] = {}
        self.revisions: dict[str, Revision] = {}
        self.revision = Revision(0)
        self.watchers: list[Callable[[str, Any, Any], None]] = []
        """Called with key, old and new value at every change, at once: for the checker."""
        self._network = network
        self._data: dict[str, bytes] = {}
        self._history: list[list[Event]] = []
        """What each transaction changed; the first one has revision 1."""
        self._leases: dict[int, _Lease] = {}
        self._watches: list[_Watch] = []
        network.add(self)

    # Requests

    def range(self, _: None, reply: Reply) -> None:
        if not self.down:
            reply(dict(self.values))

    def listing(self, prefix: str, reply: Reply) -> None:
        if not self.down:
            items = [KeyValue(key, self._data[key], self.revisions[key]) for key in sorted(self._data)]
            reply(Range(tuple(item for item in items if item.key.startswith(prefix)), self.revision))

    def transact(self, request: Transaction, reply: Reply) -> None:
        """The revision, or REFUSED, or GONE for a lease that is not there."""
        if not self.down:
            reply(self.write(request))

    def write(self, request: Transaction) -> Revision | str:
        if any(self.revisions.get(key, ABSENT) != revision for key, revision in request.compares):
            return REFUSED
        if request.lease is not None:
            if request.lease not in self._leases:
                return GONE
            self._leases[request.lease].keys.add(request.key)
        self._put([*request.also, (request.key, request.value)])
        return self.revision

    def grant(self, ttl_ms: float, reply: Reply) -> None:
        if not self.down:
            lease = 1 + len(self._leases) + self.world.events
            self._leases[lease] = _Lease(ttl_ms, self.world.now_ms + ttl_ms)
            self.world.after(ttl_ms, self._expire, lease)
            reply(lease)

    def keep_alive(self, lease: int, reply: Reply) -> None:
        if not self.down:
            held = self._leases.get(lease)
            if held is not None:
                held.expires_ms = self.world.now_ms + held.ttl_ms
            reply(held is not None)

    def revoke(self, lease: int, reply: Reply) -> None:
        if not self.down:
            self._end(lease)
            reply(True)

    def watch(self, process: Process, seen: Revision, deliver: Callable[[list[list[Event]]], None]) -> None:
        self._watches = [watch for watch in self._watches if watch.process.alive]
        watch = _Watch(process, deliver, seen)
        self._watches.append(watch)
        self._plan(watch)

    # Inside

    def come_back(self) -> None:
        self.down = False
        for lease in self._leases.values():
            lease.expires_ms = self.world.now_ms + lease.ttl_ms

    def _put(self, changes: Sequence[tuple[str, Any]]) -> None:
        """In one transaction."""
        self.revision = Revision(self.revision + 1)
        before = {key: self.values.get(key) for key, _ in changes}
        for key, value in changes:
            self._put_one(key, value)
        self._history.append([Event(key, self._data.get(key), self.revision) for key, _ in changes])
        for key, _ in changes:
            self.world.note("store", key, "=", self.values.get(key))
            for watcher in self.watchers:
                watcher(key, before[key], self.values.get(key))
        for watch in self._watches:
            self._plan(watch)

    def _put_one(self, key: str, value: Any) -> None:
        match value:
            case PartitionState():
                value = replace(value, version=self.revision)
            case BrokerInfo():
                value = replace(value, epoch=self.revision)
        if value is None:
            del self.values[key], self.revisions[key], self._data[key]
        else:
            self.values[key] = value
            self.revisions[key] = self.revision
            self._data[key] = model.encode(value)

    def _expire(self, lease: int) -> None:
        held = self._leases.get(lease)
        if held is None:
            return
        left_ms = held.expires_ms - self.world.now_ms
        if self.down or left_ms > 0:
            self.world.after(max(left_ms, 50), self._expire, lease)
        else:
            self._end(lease)

    def _end(self, lease: int) -> None:
        held = self._leases.pop(lease, None)
        gone = [(key, None) for key in sorted(held.keys) if key in self.values] if held is not None else []
        if gone:
            self._put(gone)

    def _plan(self, watch: _Watch, delay_ms: float | None = None) -> None:
        if not watch.planned and watch.process.alive:
            watch.planned = True
            if delay_ms is None:
                delay_ms = 1 + 4 * self.world.random.random()
                if self._network.late and self.world.random.random() < 5 * self._network.late:
                    delay_ms += 2_000 * self.world.random.random() ** 2
            self.world.after(delay_ms, self._pump, watch)

    def _pump(self, watch: _Watch) -> None:
        watch.planned = False
        if self.down or (STORE, watch.process.name) in self._network.cut:
            self._plan(watch, 50)
            return
        changes = self._history[watch.seen :]
        watch.seen = len(self._history)
        if changes:
            watch.process.do(watch.deliver, changes)
