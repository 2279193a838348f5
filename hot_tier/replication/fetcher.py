"""Following one broker: all partitions that it leads and we hold, over one connection.

Owns: when a request is sent, what it names, and which answer belongs to which position. Leaves to
`followed_partition` what an answer does to a log, to `link` the bytes, to `fetchers` which broker is followed for what.

    answer ──▶ replicas take their records ──▶ logs sync ──▶ request with the new positions ──▶ …

Everything happens in callbacks of the link, of the logs and of timers; no task waits for an answer.

- An answer counts for a partition only if the request it answers named the position that stands: whatever else is
  under way when a partition is let go, or followed anew in another epoch, is dropped.
- Positions of one answer are told together, so that a sync costs one request and not one per partition. A log that
  syncs slowly holds the others up for `HOLD_S` at most.
- A broker that does not answer is given up and tried again; what it did meanwhile no longer matters.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import structlog

from hot_tier.clock import steady_s
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId
from hot_tier.replication.followed_partition import FollowedPartition, Next
from hot_tier.replication.following import FetchAnswer
from hot_tier.replication.link import LeaderLink, PartitionKey

if TYPE_CHECKING:
    from hot_tier.replication.fetchers import Fetchers

HOLD_S: Final = 0.005
CUTTING_S: Final = 0.05
"""How long logs are cut in one step. A cut waits for the disk, some 30 ms if that is busy, and after the loss of a
leader many logs are cut. The other logs ask again, so that this broker can do other things in between, such as renewing
its lease."""
AGAIN_S: Final = 0.02
REFUSED_S: Final = 0.02
CONNECT_TIMEOUT_S: Final = 3.0
LOOK_S: Final = 0.2
DOUBT_S: Final = 0.3
SILENCE_S: Final = 5.0
"""In addition to the time that a request may wait: after `DOUBT_S` the leader is in doubt, after `SILENCE_S` gone."""
BACKOFF_S: Final = (0.02, 1.0)
UNDER_WAY: Final = 2
USED_UP: Final = 2**62
"""Stands for a request that is never answered: until a partition is named again, it takes no more records. Records
that do not begin at the log's end would leave a gap, and a gap looks like what compaction leaves."""

_log = structlog.get_logger()

Restore = Callable[[FollowedPartition], Awaitable[None]]
"""Lets a replica go on where its archived history ends."""


class Fetcher:
    def __init__(self, leader: NodeId, name: str, parts: "Fetchers") -> None:
        self._leader = leader
        self._name = name
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._replicas: dict[PartitionKey, FollowedPartition] = {}
        self._due: dict[PartitionKey, FollowedPartition] = {}
        """Those with a position to tell."""
        self._settling: dict[PartitionKey, FollowedPartition] = {}
        """Those with a position that is not durable yet."""
        self._forgotten: set[PartitionKey] = set()
        self._named: dict[PartitionKey, int] = {}
        """The request that last named a partition; only its answers and later ones count."""
        self._link: LeaderLink | None = None
        self._lost: asyncio.Future[None] | None = None
        self._sent = 0
        self._answered = 0
        self._answered_at = 0.0
        self._doubting = False
        self._refused_until = 0
        self._in_session = False
        self._scheduled = False
        self._hold_timer: asyncio.TimerHandle | None = None
        self._hold_over = False
        self._tasks: set[asyncio.Future[None]] = set()
        self._connecting = self._loop.create_task(self._keep_connected(), name=f"follow {name}")

    def __len__(self) -> int:
        return len(self._replicas)

    # What is followed

    def follow(self, replica: FollowedPartition) -> None:
        self._replicas[replica.key] = replica
        self._forgotten.discard(replica.key)
        replica.durable_listener = self._durable
        self._ask(replica)

    def unfollow(self, replica: FollowedPartition) -> None:
        if self._replicas.get(replica.key) is not replica:
            return
        replica.durable_listener = None
        del self._replicas[replica.key]
        self._due.pop(replica.key, None)
        self._settling.pop(replica.key, None)
        if self._named.pop(replica.key, None) is not None:
            self._forgotten.add(replica.key)
            self._send_soon()

    async def stop(self) -> None:
        self._connecting.cancel()
        for task in self._tasks:
            task.cancel()
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        if self._link is not None:
            self._link.close()
            self._link = None
        await asyncio.gather(self._connecting, *self._tasks, return_exceptions=True)

    def _ask(self, replica: FollowedPartition) -> None:
        """Tells its position as soon as it is durable."""
        key = replica.key
        if self._replicas.get(key) is not replica:
            return
        if replica.is_durable:
            self._settling.pop(key, None)
            self._due[key] = replica
        else:
            self._settling[key] = replica
        self._send_soon()

    def _durable(self, replica: FollowedPartition) -> None:
        if self._settling.pop(replica.key, None) is not None:
            self._due[replica.key] = replica
            self._send_soon()

    # Requests

    def _send_soon(self) -> None:
        """Sends at the end of the loop's step, so that everything that becomes durable in this step is in one
        request."""
        if not self._scheduled and self._link is not None:
            self._scheduled = True
            self._loop.call_soon(self._send_if_due)

    def _send_if_due(self) -> None:
        self._scheduled = False
        link = self._link
        under_way = self._sent - self._answered
        if link is None or under_way >= (UNDER_WAY if self._in_session else 1):
            return
        if under_way and not self._due and not self._forgotten:
            return
        if self._settling and not self._hold_over:
            if self._hold_timer is None:
                self._hold_timer = self._loop.call_later(HOLD_S, self._held_long_enough)
            return
        if not self._due and len(self._settling) >= len(self._replicas) and not self._forgotten:
            return
        if self._hold_timer is not None and not self._settling:
            self._hold_timer.cancel()
            self._hold_timer = None
        if not self._settling:
            self._hold_over = False
        due = {key: replica for key, replica in self._due.items() if self._still_durable(key, replica)}
        self._due.clear()
        forgotten, self._forgotten = self._forgotten, set()
        if not under_way:
            self._answered_at = self._loop.time()
        self._sent = link.send({key: replica.next_fetch() for key, replica in due.items()}, forgotten)
        for key in due:
            self._named[key] = self._sent

    def _still_durable(self, key: PartitionKey, replica: FollowedPartition) -> bool:
        """Returns whether the position is still durable: its topic may now have to sync before it acknowledges."""
        if not replica.is_durable:
            self._settling[key] = replica
            return False
        return True

    def _held_long_enough(self) -> None:
        self._hold_timer = None
        self._hold_over = True
        self._send_if_due()

    # Answers

    def answered(self, number: int, answers: Iterable[tuple[PartitionKey, FetchAnswer]]) -> None:
        self._answered = number
        self._in_session = True
        self._answered_at = self._loop.time()
        self._doubt(False)
        now_ms = self._parts.clock()
        cutting_since = 0.0
        for key, answer in answers:
            replica = self._replicas.get(key)
            named = self._named.get(key)
            if replica is None or named is None or number < named:
                continue
            cuts = answer.error is not None or answer.diverging is not None or replica.in_doubt
            if cuts:
                cutting_since = cutting_since or steady_s()
            late = cuts and steady_s() - cutting_since > CUTTING_S
            outcome = Next.LATER if late else replica.take(answer, now_ms)
            if outcome is not Next.WAIT:
                self._named[key] = USED_UP
            match outcome:
                case Next.ASK:
                    delay_s = self._parts.throttle(replica, len(answer.records), self._answered_at)
                    if delay_s > 0:
                        self._loop.call_later(delay_s, self._ask, replica)
                    else:
                        self._ask(replica)
                case Next.LATER:
                    self._loop.call_later(AGAIN_S, self._ask, replica)
                case Next.FROM_ARCHIVE:
                    self._restore(replica)
                case Next.WAIT:
                    pass
        self._hold_over = False
        self._send_soon()

    def refused(self, number: int, error: TierlogError) -> None:
        self._answered = number
        if number <= self._refused_until:
            if self._due:  # all were named before this answer came, and waited for it
                self._send_soon()
            return
        _log.info("followed broker refuses", broker=self._leader, error=str(error))
        self._refused_until = self._sent
        self._in_session = False
        self._loop.call_later(REFUSED_S, self._name_all)

    def lost(self, error: Exception) -> None:
        self._link = None
        if self._lost is not None and not self._lost.done():
            self._lost.set_exception(error)

    def _name_all(self) -> None:
        """Names every position again, because a session begins."""
        self._named.clear()
        self._forgotten.clear()
        self._due.clear()
        for replica in self._replicas.values():
            self._ask(replica)

    def _restore(self, replica: FollowedPartition) -> None:
        async def restore() -> None:
            try:
                await self._parts.restore(replica)
                delay_s = 0.0
            except (TierlogError, OSError) as error:
                _log.warning("replica not begun from the archive", partition=str(replica.tp), error=str(error))
                delay_s = BACKOFF_S[1]
            self._loop.call_later(delay_s, self._ask, replica)

        task = self._loop.create_task(restore())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The connection

    def _doubt(self, doubtful: bool) -> None:
        """Doubts a leader that does not answer, so that clients who ask for it soon learn of its successor."""
        if doubtful != self._doubting:
            self._doubting = doubtful
            (self._parts.image.doubt if doubtful else self._parts.image.trust)(self._leader)

    async def _keep_connected(self) -> None:
        backoff_s = BACKOFF_S[0]
        await self._parts.started.wait()
        while True:
            try:
                await self._serve_one()
                backoff_s = BACKOFF_S[0]
            except (OSError, TierlogError) as error:
                _log.info("followed broker not reached", broker=self._leader, error=str(error) or repr(error))
                if isinstance(error, ConnectionError):
                    self._parts.suspect(self._leader)
            except Exception:
                # After any error go on: replicas that stop following for good are out of sync for good.
                _log.exception("following failed", broker=self._leader)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S[1])

    async def _serve_one(self) -> None:
        """Runs one connection from its beginning to its end."""
        image = self._parts.image
        await image.wait_for(lambda: image.broker(self._leader) is not None)
        broker = image.broker(self._leader)
        assert broker is not None
        lost = self._lost = self._loop.create_future()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            self._link = link = await self._parts.connect(broker, self._name, self)
        try:
            self._sent = self._answered = self._refused_until = 0
            self._in_session = False
            self._name_all()
            self._send_soon()
            while not lost.done():
                await asyncio.wait((lost,), timeout=LOOK_S)
                late_s = self._loop.time() - self._answered_at - self._parts.settings.fetch_wait_max_ms / 1000
                if self._sent > self._answered and late_s > SILENCE_S:
                    raise TimeoutError("no answer")
                self._doubt(self._sent > self._answered and late_s > DOUBT_S)
                if self._in_session and self._sent == self._answered and not lost.done():
                    # All wait for the disk, which may take long. A leader takes a silent follower for cut off.
                    self._answered_at = self._loop.time()
                    self._sent = link.send({}, ())
            lost.result()
        finally:
            self._doubt(False)
            self._link = None
            link.close()
