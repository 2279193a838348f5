"""What the suite asks of a Kafka client, and the values that go in and come out.

An error of the broker is a `ServerError` with Kafka's number, whatever class the client made of it. What a client
cannot do at all is `Unsupported`; the suite skips that case for it with this reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

TIMEOUT_S = 20.0

Start = int | Literal["beginning", "end"]
Isolation = Literal["read_uncommitted", "read_committed"]


class ServerError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"[{code}] {text}")
        self.code = code


class Fenced(Exception):
    """A producer that can do nothing any more: another has its transactional id, or its transaction took too long."""


class Unsupported(Exception):
    """This client has no such call."""


class Partition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    acks: Literal[0, 1, "all"] = "all"
    codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    idempotent: bool = False
    max_request_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class MemberOptions:
    strategy: Literal["range", "roundrobin", "cooperative-sticky"] = "range"
    instance_id: str | None = None
    auto_commit_ms: int | None = None
    session_ms: int = 6000


@dataclass(frozen=True, slots=True)
class Group:
    state: str
    members: Mapping[str, frozenset[Partition]] = field(default_factory=dict)


DEFAULT_PRODUCER = ProducerOptions()
DEFAULT_MEMBER = MemberOptions()


class Member(Protocol):
    """One member of a consumer group, subscribed; it lives as long as it is polled."""

    def poll(self, timeout_s: float = 0.2) -> list[Record]: ...
    def assignment(self) -> frozenset[Partition]: ...
    def commit(self, offsets: Mapping[Partition, int] | None = None, metadata: str = "") -> None: ...
    def committed(self, partition: Partition) -> int | None: ...
    def close(self) -> None: ...


class Transactional(Protocol):
    """A producer with a transactional id. Raises Fenced."""

    def begin(self) -> None: ...
    def send(self, partition: Partition, values: Sequence[bytes]) -> None: ...
    def flush(self) -> None: ...
    def commit_offsets(self, group: str, partition: Partition, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Client(Protocol):
    """`close` ends whatever the client still holds, members included."""

    name: str

    def produce(
        self, partition: Partition, messages: Sequence[Message], options: ProducerOptions = DEFAULT_PRODUCER
    ) -> list[int]:
        """Sends all and waits for every answer; the offsets in the order of the messages, −1 with acks=0."""
        ...

    def read(
        self,
        partition: Partition,
        start: Start,
        count: int,
        *,
        max_partition_bytes: int = 1 << 20,
        isolation: Isolation = "read_uncommitted",
    ) -> list[Record]: ...
    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> "Transactional":
        """Started: no older one of this id can commit any more."""
        ...

    def offset_for_time(self, partition: Partition, timestamp: int) -> int | None: ...
    def bounds(self, partition: Partition) -> tuple[int, int]:
        """Earliest and latest offset."""
        ...

    def member(self, group: str, topics: Sequence[str], options: MemberOptions = DEFAULT_MEMBER) -> Member: ...

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None: ...
    def delete_topic(self, name: str) -> None: ...
    def topics(self) -> dict[str, int]: ...
    def add_partitions(self, name: str, total: int) -> None: ...
    def topic_config(self, name: str) -> dict[str, str | None]: ...
    def alter_topic_config(self, name: str, config: Mapping[str, str]) -> None: ...
    def cluster(self) -> dict[int, tuple[str, int]]: ...
    def groups(self) -> set[str]: ...
    def group(self, name: str) -> Group: ...
    def group_offsets(self, name: str) -> dict[Partition, int]: ...
    def delete_group(self, name: str) -> None: ...
    def delete_records(self, partition: Partition, before: int) -> int: ...
    def close(self) -> None: ...
