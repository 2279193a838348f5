"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changed.

This is pure bookkeeping: which partitions a request means, and which answers must be sent. No I/O and no clock.

    request                            meaning
    id 0,  epoch −1                    no session
    id any, epoch 0                    all partitions follow; begin a session (and end session `id`)
    id n,  epoch −1                    all partitions follow; end session n
    id n,  epoch = what is expected    only changes follow

In a session both sides remember the rest. Whenever that is in doubt, the client gets an error (unknown id, wrong epoch)
and begins again with all partitions. At the limit (of sessions, or of all their partitions) an idle session is evicted;
if there is none, the client gets no session, which only makes its requests longer.
"""

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1
EVICTABLE_AFTER_MS: Final = 120_000
MAX_PARTITIONS: Final = 500_000
"""Limit for all sessions together, and for all large fetches that wait."""
IDS_SINCE: Final = 13
"""From this version on, topics are named by id."""

TopicKey = str | UUID


@dataclass(slots=True)
class Wanted:
    """One partition of a fetch; in a session also what the client was last told about it."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    told_high_watermark: int = -1
    told_log_start_offset: int = -1
    told_error: int = 0

    def update(self, asked: FetchPartition) -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch


@dataclass(slots=True)
class Session:
    id: int
    owner: str
    """The user that began it. To anybody else it is not there: ids can be guessed."""
    epoch: int
    by_id: bool
    """Whether topics are named by id."""
    partitions: OrderedDict[tuple[TopicKey, int], Wanted]
    used_ms: int


@dataclass(slots=True)
class Plan:
    wanted: list[Wanted]
    session: Session | None = None
    full: bool = True
    """Every partition is answered, not only those with news."""
    error: ErrorCode = ErrorCode.NONE
    """What is wrong with the session; the client begins again."""

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partitions = 0
        """The partitions of all sessions."""
        self.waiting = 0
        """Partitions of waiting fetches that have too many to look at in one step."""
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        """Least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, version: int, now_ms: int, owner: str) -> Plan:
        epoch = request.session_epoch
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner != owner:
            session = None
        if epoch in (FINAL_EPOCH, FIRST_EPOCH):
            if session is not None:
                self._end(session.id)
            if epoch == FINAL_EPOCH:
                return Plan(_wanted(request.topics, version))
            return self._begin(request, version, now_ms, owner)
        if session is None:
            return Plan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return self._go_on(session, request, version, now_ms)

    def _begin(self, request: FetchRequest, version: int, now_ms: int, owner: str) -> Plan:
        wanted = _wanted(request.topics, version)
        if not wanted or not self._make_room(len(wanted), now_ms):
            return Plan(wanted)
        partitions = OrderedDict(((item.topic, item.partition), item) for item in wanted)
        session = Session(self._new_id(), owner, 1, version >= IDS_SINCE, partitions, now_ms)
        self._sessions[session.id] = session
        self._partitions += len(partitions)
        return Plan(list(partitions.values()), session)

    def _go_on(self, session: Session, request: FetchRequest, version: int, now_ms: int) -> Plan:
        if session.epoch != request.session_epoch:
            return Plan([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != (version >= IDS_SINCE):
            return Plan([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        before = len(session.partitions)
        for topic in request.topics:
            key: TopicKey = topic.topic_id if session.by_id else topic.topic
            for asked in topic.partitions:
                known = session.partitions.get((key, asked.partition))
                if known is None:
                    session.partitions[(key, asked.partition)] = _one(key, asked)
                else:
                    known.update(asked)
        for forgotten in request.forgotten_topics_data:
            key = forgotten.topic_id if session.by_id else forgotten.topic
            for index in forgotten.partitions:
                session.partitions.pop((key, index), None)
        self._partitions += len(session.partitions) - before
        if self._partitions > MAX_PARTITIONS:
            self._end(session.id)
            return Plan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return Plan(list(session.partitions.values()), session, full=False)

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        while len(self._sessions) >= self._limit or self._partitions + partitions > MAX_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms <= EVICTABLE_AFTER_MS:
                return False
            self._end(oldest.id)
        return True

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)

    def _new_id(self) -> int:
        while True:
            chosen = secrets.randbelow(2**31 - 1) + 1
            if chosen not in self._sessions:
                return chosen


def news(plan: Plan, wanted: Wanted, answer: PartitionData) -> bool:
    """Returns whether this answer must be sent. Remembers what the client knows from now on."""
    session = plan.session
    if session is None:
        return True
    changed = (
        plan.full
        or bool(answer.records)
        or answer.error_code != 0
        or wanted.told_error != 0
        or answer.high_watermark != wanted.told_high_watermark
        or answer.log_start_offset != wanted.told_log_start_offset
        or answer.diverging_epoch is not None
        or answer.preferred_read_replica >= 0
    )
    if changed:
        wanted.told_high_watermark = answer.high_watermark
        wanted.told_log_start_offset = answer.log_start_offset
        wanted.told_error = answer.error_code
    key = (wanted.topic, wanted.partition)
    if answer.records and key in session.partitions:
        # A partition that got data moves to the end, so that after a full response the others are next.
        session.partitions.move_to_end(key)
    return changed


def _wanted(topics: list[FetchTopic], version: int) -> list[Wanted]:
    """Returns each partition once; if it is named twice, the last one counts."""
    by_id = version >= IDS_SINCE
    found: dict[tuple[TopicKey, int], Wanted] = {}
    for topic in topics:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            found[key, asked.partition] = _one(key, asked)
    return list(found.values())


def _one(key: TopicKey, asked: FetchPartition) -> Wanted:
    return Wanted(
        key,
        asked.partition,
        asked.fetch_offset,
        asked.partition_max_bytes,
        asked.current_leader_epoch,
        asked.last_fetched_epoch,
    )
