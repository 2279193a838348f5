"""A bucket that fails: requests that are lost before or after they took effect, slow ones that are overtaken by later
ones, uploads that are torn, and manifests that go back.

`Bucket` is the process that holds the objects. `BucketClient` is one broker's way to it, under the interface of
production (`cold_tier.objects.store.ObjectStore`). A request whose answer does not come in time may have taken effect,
or may take effect yet.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cold_tier.errors import ObjectMissing, StoreUnavailable
from cold_tier.objects.store import Buffer, ObjectInfo
from tests.sim.network import Network, Reply
from tests.sim.world import Process, World

if TYPE_CHECKING:
    from tests.sim.broker import Broker

BUCKET: Final = "bucket"
ATTEMPT_MS: Final = 400.0
FASTEST_CLOCK: Final = 1.5
"""Of a broker, beside the world's: its times are so much shorter."""
_MISSING: Final = "missing"


@dataclass(frozen=True)
class Request:
    method: str
    key: str
    data: Any
    sent_ms: float


@dataclass
class Health:
    lost: float = 0.0
    """The share of requests that have no effect and no answer."""
    unanswered: float = 0.0
    """The share that has its effect and no answer."""
    late: float = 0.0
    """The share that takes effect up to seconds later."""
    late_manifests: float = 0.0
    """The share of manifests that are stored only when who publishes them has given up."""
    torn: float = 0.0
    """The share of uploads of new objects of which only a part is stored, and which are answered like all others."""


class Bucket(Process):
    def __init__(self, world: World, network: Network) -> None:
        super().__init__(world, BUCKET)
        self.health = Health()
        self.down = False
        self.is_late = False
        """The request that is carried out was given up by who sent it."""
        self.list_lag_ms = 0.0
        """Listings leave out what was put so lately."""
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.hidden: dict[str, tuple[bytes, int]] = {}
        """Manifests that a fault took away."""
        self.watchers: list[Callable[[str, bytes | None, bytes | None], None]] = []
        """Called with key, old and new bytes at every change, at once: for the checker."""
        network.add(self)

    def ask(self, request: Request, reply: Reply) -> None:
        chance, health = self.world.random.random, self.health
        if self.down or (health.lost and chance() < health.lost):
            return
        publishes = request.method.startswith("put") and "/manifest/" in request.key
        if publishes and health.late_manifests and chance() < health.late_manifests:
            self.world.after(600 + 900 * chance(), self._answer, request, reply)
        elif health.late and chance() < health.late:
            self.world.after(2_500 * chance() ** 2, self._answer, request, reply)
        else:
            self._answer(request, reply)

    def _answer(self, request: Request, reply: Reply) -> None:
        self.is_late = self.world.now_ms - request.sent_ms >= ATTEMPT_MS / FASTEST_CLOCK
        answer = getattr(self, request.method)(request.key, request.data)
        if not self.health.unanswered or self.world.random.random() >= self.health.unanswered:
            reply(answer)

    # Requests

    def put(self, key: str, data: bytes) -> bool:
        self._change(key, data)
        return True

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return key not in self.objects and self.put(key, data)

    def upload(self, key: str, data: bytes) -> bool:
        torn = self.health.torn and key not in self.objects and self.world.random.random() < self.health.torn
        return self.put(key, data[: len(data) // 2] if torn else data)

    def get(self, key: str, part: tuple[int, int | None]) -> Any:
        if key not in self.objects:
            return _MISSING
        start, length = part
        data = self.objects[key][0]
        return data[start:] if length is None else data[start : start + length]

    def head(self, key: str, _: None) -> Any:
        return ObjectInfo(key, len(self.objects[key][0]), self.objects[key][1]) if key in self.objects else _MISSING

    def list(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        shown_ms = self.world.now_ms - self.list_lag_ms
        listed = (key for key, (_, put_ms) in self.objects.items() if not self.list_lag_ms or put_ms <= shown_ms)
        keys = sorted(key for key in listed if key.startswith(prefix) and key > start_after)
        return [ObjectInfo(key, len(self.objects[key][0]), self.objects[key][1]) for key in keys]

    def folders(self, prefix: str, _: None) -> Sequence[str]:
        inside = (key[len(prefix) :] for key in self.objects if key.startswith(prefix))
        return sorted({rest.partition("/")[0] for rest in inside if "/" in rest})

    def delete(self, _: str, keys: Sequence[str]) -> bool:
        for key in keys:
            if key in self.objects:
                self._change(key, None)
        return True

    def _change(self, key: str, data: bytes | None) -> None:
        before = self.objects.pop(key, (None, 0))[0]
        self.world.note("bucket", key, "is gone" if data is None else f"has {len(data)} bytes")
        if data is not None:
            self.objects[key] = (data, int(self.world.now_ms))
        for watcher in self.watchers:
            watcher(key, before, data)

    # Faults

    def go_back(self, count: int) -> None:
        """The newest manifests are not there any more, as in a bucket that was put back to an older state."""
        manifests = sorted(key for key in self.objects if "/manifest/" in key and not key.endswith("/"))
        for key in manifests[:count]:
            self.hidden[key] = self.objects.pop(key)
        self.world.note("bucket goes back by", manifests[:count])

    def come_back(self) -> None:
        """The newer state is put back, where nothing else has taken its place."""
        for key, stored in self.hidden.items():
            self.objects.setdefault(key, stored)
        self.hidden.clear()

    def recover(self) -> None:
        self.down = False
        self.list_lag_ms = 0.0
        self.health = Health()
        self.come_back()


class BucketClient:
    url = "sim://"

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.files: dict[str, bytes] = {}
        """What `put_file` uploads, by path."""

    async def put(self, key: str, data: Buffer) -> None:
        await self._ask("upload" if key.endswith(".index") else "put", key, bytes(data))

    async def put_if_absent(self, key: str, data: Buffer) -> bool:
        return bool(await self._ask("put_if_absent", key, bytes(data)))

    async def put_file(self, key: str, path: str) -> None:
        await self._ask("upload", key, self.files[path])

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[Buffer]:
        data = await self._ask("get", key, (start, length))
        if data is _MISSING:
            raise ObjectMissing("no such object", where=f"{self.url}{key}")
        yield data

    async def head(self, key: str) -> ObjectInfo | None:
        found = await self._ask("head", key)
        return None if found is _MISSING else found

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        for info in await self._ask("list", prefix, start_after):
            yield info

    async def folders(self, prefix: str) -> Sequence[str]:
        found: Sequence[str] = await self._ask("folders", prefix)
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        await self._ask("delete", "", list(keys))

    async def close(self) -> None:
        pass

    async def _ask(self, method: str, key: str, data: Any = None) -> Any:
        call = self._broker.call(BUCKET, "ask", Request(method, key, data, self._broker.world.now_ms), ATTEMPT_MS)
        answer = await self._broker.loop.wait_for(call)
        if answer is None:
            raise StoreUnavailable("no answer", where=f"{self.url}{key}")
        return answer
