"""`tierlog consume`: a topic to standard output, as lines or JSON.

Without `--follow` it reads to where each partition ended when it began, and stops: `cat`. With it, it starts at the
end unless told otherwise and goes on until interrupted: `tail -f`. Partitions are read a page at a time in
turn; order holds within a partition. With `--group` a page is committed after it was written.
"""

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from hot_tier.clock import wall_ms
from tierlog.cli import output, records
from tierlog.cli.options import DEFAULT_SERVER, Json, Partitions, Server, TopicName
from tierlog.cli.times import parse_range
from tierlog.cli.topics import partitions_to_read
from tierlog.client import Client, path

PAGE = 10_000
MAX_READERS = 16
WAIT_MS = 1_000


@dataclass(slots=True)
class Position:
    """How far one partition is read."""

    partition: int
    start: dict[str, Any]
    """The query of the first page; later ones go on at `offset`. Empty: where the group is."""
    end: int | None
    """Stop here; None is never."""
    offset: int | None = None
    done: bool = False


@dataclass(slots=True)
class Consumer:
    """What the readers of one run share. `emit` is the only place that writes and counts."""

    server: str
    topic: str
    group: str | None
    to: int | None
    limit: int | None
    json: bool
    separator: bytes | None
    follow: bool
    isolation: str | None
    written: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    writing: threading.Lock = field(default_factory=threading.Lock)
    failures: list[BaseException] = field(default_factory=list)

    def read(self, positions: list[Position], advance: Any) -> None:
        """Reads these partitions in turn until all are done, the limit is reached or somebody says stop."""
        wait_ms = max(WAIT_MS // len(positions), 20) if self.follow else 0
        with Client(self.server, timeout_s=60 + wait_ms / 1000) as client:
            while not self.stopping.is_set() and not all(position.done for position in positions):
                for position in positions:
                    if not position.done and not self.stopping.is_set():
                        advance(self._page(client, position, wait_ms))

    def read_in_thread(self, positions: list[Position]) -> None:
        try:
            self.read(positions, lambda done: None)
        except BaseException as error:
            self.failures.append(error)
            self.stopping.set()

    def _page(self, client: Client, position: Position, wait_ms: int) -> int:
        query: dict[str, Any] = {"limit": PAGE, "wait_ms": wait_ms or None, "to": self.to, "isolation": self.isolation}
        if self.limit is not None:
            query["limit"] = max(1, min(PAGE, self.limit - self.written))
        if self.group is None:
            query |= position.start if position.offset is None else {"offset": position.offset}
        headers = {"X-Consumer-Group": self.group} if self.group is not None else {}
        address = path("topics", self.topic, "partitions", position.partition, "messages")
        page = client.get(address, headers, **query)
        shown = [each for each in page["messages"] if position.end is None or each["offset"] < position.end]
        count = self.emit(shown, position.partition)
        following = page["next_offset"]
        if count < len(page["messages"]):
            following = shown[count - 1]["offset"] + 1 if count else position.offset
        if self.group is not None and count:
            committed = {"topic": self.topic, "partition": position.partition, "offset": following}
            client.post(path("consumer-groups", self.group, "offsets"), committed)
        if position.end is not None:
            # An empty page may still move on, over what compaction took away.
            moved = self.group is None and self.to is None and page["next_offset"] != position.offset
            position.done = page["next_offset"] >= position.end or not (page["messages"] or moved)
        position.offset = following
        return count

    def emit(self, messages: list[Mapping[str, Any]], partition: int) -> int:
        """Writes messages, up to the limit. Returns how many."""
        with self.writing:
            if self.limit is not None:
                messages = messages[: self.limit - self.written]
            if self.json:
                lines = [records.as_json(message, self.topic, partition).encode() for message in messages]
            else:
                lines = [records.as_line(message, self.separator) for message in messages]
            if lines:
                sys.stdout.buffer.write(b"\n".join(lines) + b"\n")
                sys.stdout.buffer.flush()
            self.written += len(lines)
            if self.limit is not None and self.written >= self.limit:
                self.stopping.set()
            return len(lines)


def register(app: typer.Typer) -> None:
    app.command("consume", help="Write a topic's records to standard output.")(consume)


FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest record.")]
FromOffset = Annotated[int | None, typer.Option(min=0, metavar="N", help="Start at this offset.")]
FromTime = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="Start at this time: -1h, 2026-03-01T08:00:00Z.")
]
ToTime = Annotated[str | None, typer.Option(metavar="TIME", help="Stop before this time.")]
AsGroup = Annotated[
    str | None, typer.Option(metavar="GROUP", help="Start where this consumer group is, and commit what was written.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", "--max-messages", min=1, metavar="N", help="Stop after so many records.")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with new records until interrupted.")]
Uncommitted = Annotated[
    bool, typer.Option("--read-uncommitted", help="Read open and aborted transactions too, up to the high watermark.")
]
KeySeparator = Annotated[str | None, typer.Option(metavar="TEXT", help="Write key, this, value. Write \\t for a tab.")]


def consume(
    topic: TopicName,
    partition: Partitions = None,
    from_beginning: FromBeginning = False,
    offset: FromOffset = None,
    from_: FromTime = None,
    to: ToTime = None,
    group: AsGroup = None,
    limit: Limit = None,
    follow: Follow = False,
    read_uncommitted: Uncommitted = False,
    key_separator: KeySeparator = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    starts = {"--from-beginning": from_beginning or None, "--offset": offset, "--from": from_, "--group": group}
    given = [flag for flag, value in starts.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} contradict each other: give one")
    if follow and to is not None:
        raise typer.BadParameter("--follow and --to contradict each other: give one")
    if json and key_separator is not None:
        raise typer.BadParameter("--key-separator is for lines, --json has keys of its own")
    from_ms, to_ms = parse_range(from_, to, wall_ms())
    start: dict[str, Any] = {"offset": "latest" if follow else "earliest"}
    if from_beginning:
        start = {"offset": "earliest"}
    elif offset is not None:
        start = {"offset": offset}
    elif from_ms is not None:
        start = {"from": from_ms}
    consumer = Consumer(
        server=server,
        topic=topic,
        group=group,
        to=to_ms,
        limit=limit,
        json=json,
        separator=None if key_separator is None else records.separator(key_separator),
        follow=follow,
        isolation="read_uncommitted" if read_uncommitted else None,
    )
    positions = _positions(consumer, partition, start)
    try:
        if follow:
            _follow(consumer, positions)
        else:
            total = sum(position.end or 0 for position in positions) if from_beginning else None
            with output.progress(f"consume {topic}", limit or total) as advance:
                consumer.read(positions, advance)
    except BrokenPipeError:
        # The reader has what it wanted (`| head`); keep the interpreter from flushing what is left into its pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        consumer.stopping.set()
        output.note(f"{consumer.written:,} records")
        raise typer.Exit(0 if follow else 130) from None


def _positions(consumer: Consumer, wanted: list[int] | None, start: dict[str, Any]) -> list[Position]:
    with Client(consumer.server) as client:
        chosen = partitions_to_read(client.get(path("topics", consumer.topic)), wanted)
    end = "last_stable_offset" if consumer.isolation is None else "high_watermark"
    return [Position(each["partition"], start, None if consumer.follow else each[end]) for each in chosen]


def _follow(consumer: Consumer, positions: list[Position]) -> None:
    """A thread per partition, up to `MAX_READERS`, so that a quiet partition does not hold up the others."""
    readers = [
        threading.Thread(target=consumer.read_in_thread, args=(positions[index::MAX_READERS],), daemon=True)
        for index in range(min(MAX_READERS, len(positions)))
    ]
    for reader in readers:
        reader.start()
    while any(reader.is_alive() for reader in readers) and not consumer.stopping.wait(0.2):
        pass
    if consumer.failures:
        raise consumer.failures[0]
