"""`tierlog replay`: a range of a topic, from either tier, to a topic, a file or standard output.

The range is fixed when a replay begins: times become offsets, open ends become the end of that moment. Partitions are
read a page at a time in turn; order holds within each. Key, value, headers and timestamp stay as they are, and to a
topic, the partition too.

Resuming needs a state file (`--state`; with `--output` it is `FILE.state` by itself). It is written after each page
that reached its destination. A page may have arrived without being noted: a file is cut back to the noted size, and a
target topic is read behind the noted offset and what already lies there is not sent again.

A record that is older than the retention.ms of the target topic is not sent, because the topic would delete it at once:
the replay ends with an error. If the first record of a partition is too old, the replay does not begin.
"""

import json as jsonlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, BinaryIO, Protocol

import typer

from hot_tier.clock import steady_s, wall_ms
from hot_tier.errors import PolicyViolation, TierlogError, UnknownPartition
from tierlog.cli import output, records
from tierlog.cli.options import DEFAULT_SERVER, Json, Partitions, Server, TopicName
from tierlog.cli.produce import BATCH_BYTES, send
from tierlog.cli.times import parse_range, show_time
from tierlog.cli.topics import partitions_to_read
from tierlog.client import Client, path

PAGE = 5_000
PAGE_BYTES = 4 << 20
VERSION = 1


class StateMismatch(TierlogError):
    """The state file belongs to another replay."""


class NothingThere(TierlogError):
    """A page has no records, and the offset to read next stays the same."""


@dataclass(slots=True)
class Part:
    """One partition's share: [next_offset, end_offset) is still to be done."""

    partition: int
    next_offset: int
    end_offset: int
    target_offset: int = 0
    """To a topic: where the next record will lie there, if nobody else writes."""


@dataclass(slots=True)
class State:
    topic_id: str
    target: str
    parts: list[Part]
    records: int = 0
    bytes: int = 0
    """Written to the file so far."""
    version: int = VERSION

    def save(self, name: str) -> None:
        with open(f"{name}.tmp", "w") as file:
            jsonlib.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{name}.tmp", name)


def load_state(name: str, topic_id: str, target: str) -> State | None:
    try:
        with open(name) as file:
            found = jsonlib.load(file)
        state = State(**{**found, "parts": [Part(**part) for part in found["parts"]]})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StateMismatch(f"is not the state of a replay: {error}", where=name) from None
    if (state.topic_id, state.target, state.version) != (topic_id, target, VERSION):
        raise StateMismatch(
            f"belongs to a replay of topic id {state.topic_id} to {state.target}",
            where=name,
            hint="delete it to begin anew, or name another with --state",
        )
    return state


class Target(Protocol):
    def resume(self, state: State) -> None:
        """Called before the first page of a run that continues an earlier one."""
        ...

    def write(self, messages: Sequence[Mapping[str, Any]], part: Part, state: State) -> None: ...


@dataclass(slots=True)
class Lines:
    """NDJSON as `consume --json` writes it."""

    topic: str
    stream: BinaryIO

    def resume(self, state: State) -> None:
        """Standard output is the caller's, also where it is a file."""
        if self.stream is not sys.stdout.buffer:
            self.stream.seek(state.bytes)
            self.stream.truncate()

    def write(self, messages: Sequence[Mapping[str, Any]], part: Part, state: State) -> None:
        text = "".join(records.as_json(each, self.topic, part.partition) + "\n" for each in messages)
        data = text.encode()
        self.stream.write(data)
        self.stream.flush()
        state.bytes += len(data)


@dataclass(slots=True)
class IntoTopic:
    source: Client
    client: Client
    topic: str
    target: str
    retention_ms: int = -1
    """How long the target keeps records, by their own times; below 0 it keeps them for ever."""

    def prepare(self, state: State, *, keep: bool, fresh: bool) -> None:
        """Checks that the target takes the replay, its first records too. `keep`: it keeps them from now on."""
        _match_partitions(self.client, self.target, state, fresh=fresh)
        if keep:
            self.client.patch(path("topics", self.target), {"config": {"retention.ms": "-1"}})
        self.retention_ms = _retention_ms(self.client, self.target)
        for part in state.parts:
            if part.next_offset < part.end_offset:
                self._check_kept(_page(self.source, self.topic, part.partition, part.next_offset, 1)["messages"], part)

    def _check_kept(self, messages: Sequence[Mapping[str, Any]], part: Part) -> None:
        oldest_ms = min((each["timestamp"] for each in messages if each["timestamp"] >= 0), default=None)
        if self.retention_ms >= 0 and oldest_ms is not None and wall_ms() - oldest_ms > self.retention_ms:
            raise PolicyViolation(
                f"its retention.ms {self.retention_ms} would delete records as old as {show_time(oldest_ms)} "
                f"at once ({self.topic}-{part.partition})",
                where=self.target,
                hint="`--keep` sets its retention.ms to -1 first; or replay a later range with --from",
            )

    def resume(self, state: State) -> None:
        for part in state.parts:
            while part.next_offset < part.end_offset:
                stored = _page(self.client, self.target, part.partition, part.target_offset, PAGE)["messages"]
                if not stored:
                    break
                sent = _page(self.source, self.topic, part.partition, part.next_offset, len(stored))["messages"]
                sent = [each for each in sent if each["offset"] < part.end_offset]
                same = 0
                while same < min(len(sent), len(stored)) and _content(sent[same]) == _content(stored[same]):
                    same += 1
                if same == 0:
                    break
                state.records += same
                part.next_offset = sent[same - 1]["offset"] + 1
                part.target_offset = stored[same - 1]["offset"] + 1
                if same < len(stored):
                    break

    def write(self, messages: Sequence[Mapping[str, Any]], part: Part, state: State) -> None:
        self._check_kept(messages, part)
        waiting: list[str] = []
        size = sent = 0
        for each in messages:
            text = jsonlib.dumps(_as_new(each, part))
            if waiting and size + len(text) > BATCH_BYTES:
                sent += self._send(waiting, part, state.records + sent)
                waiting, size = [], 0
            waiting.append(text)
            size += len(text)
        self._send(waiting, part, state.records + sent)

    def _send(self, messages: list[str], part: Part, before: int) -> int:
        results = send(self.client, self.target, messages, before)
        part.target_offset = results[-1]["offset"] + 1
        return len(messages)


def _content(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "offset"}


def _as_new(message: Mapping[str, Any], part: Part) -> dict[str, Any]:
    new = {name: value for name, value in message.items() if name not in ("offset", "value", "timestamp")}
    new["partition"] = part.partition
    new["value"] = message["value"]
    if message["value"] is not None:
        new["value_encoding"] = "base64"
    if message["timestamp"] >= 0:
        new["timestamp"] = message["timestamp"]
    return new


@dataclass(slots=True)
class Pace:
    """Holds a replay to its rates: sleeps until what was done would have taken its time."""

    records_per_second: float
    bytes_per_second: float
    began: float = field(default_factory=steady_s)
    records: int = 0
    bytes: int = 0

    def page(self) -> int:
        """How many records to ask for: a quarter of a second's worth, so that a low rate is smooth."""
        return max(1, min(PAGE, int(self.records_per_second / 4))) if self.records_per_second else PAGE

    def page_bytes(self) -> int:
        return max(1, min(PAGE_BYTES, int(self.bytes_per_second / 4))) if self.bytes_per_second else PAGE_BYTES

    def wait(self, messages: Sequence[Mapping[str, Any]]) -> None:
        self.records += len(messages)
        self.bytes += sum(len(each["value"] or "") * 3 // 4 + len(each["key"] or "") for each in messages)
        due = self.began
        if self.records_per_second:
            due = max(due, self.began + self.records / self.records_per_second)
        if self.bytes_per_second:
            due = max(due, self.began + self.bytes / self.bytes_per_second)
        time.sleep(max(0.0, due - steady_s()))


def register(app: typer.Typer) -> None:
    app.command("replay", help="Copy a range of a topic to a topic, a file or standard output. Can be resumed.")(replay)


ToTopic = Annotated[
    str | None, typer.Option(metavar="TOPIC", help="Into this topic, which has as many partitions or more.")
]
ToServer = Annotated[str | None, typer.Option(metavar="URL", help="The node that has it. [default: --server]")]
ToProfile = Annotated[str | None, typer.Option(metavar="NAME", help="The profile of that node. [default: --profile]")]
Keep = Annotated[
    bool, typer.Option("--keep", help="First set that topic's retention.ms to -1, so that old records stay there.")
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Into this file, a JSON object per line.")
]
FromOffset = Annotated[int | None, typer.Option(min=0, metavar="N", help="From this offset on.")]
EndOffset = Annotated[int | None, typer.Option(min=0, metavar="N", help="Up to this offset, exclusive.")]
FromTime = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="From this time on: -1h, 2026-03-01T08:00:00Z.")
]
ToTime = Annotated[str | None, typer.Option(metavar="TIME", help="Up to this time, exclusive.")]
StateFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Where to keep how far it got. [default: FILE.state of --output]")
]
RecordRate = Annotated[float, typer.Option(min=0, metavar="N", help="At most; 0 sets no limit.")]
ByteRate = Annotated[float, typer.Option(min=0, metavar="N", help="Of keys and values, at most; 0 sets no limit.")]


def _target_client(server: str, to_server: str | None, to_profile: str | None) -> Client:
    """The login of `--profile` is for `--server`: another node has a profile of its own, or none."""
    if to_server is None and to_profile is None:
        return Client(server)
    return Client(to_server or "", profile=to_profile or "")


def replay(
    topic: TopicName,
    to_topic: ToTopic = None,
    to_server: ToServer = None,
    to_profile: ToProfile = None,
    keep: Keep = False,
    output_: Output = None,
    partition: Partitions = None,
    offset: FromOffset = None,
    end_offset: EndOffset = None,
    from_: FromTime = None,
    to: ToTime = None,
    state: StateFile = None,
    records_per_second: RecordRate = 0,
    bytes_per_second: ByteRate = 0,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    if to_topic is not None and output_ is not None:
        raise typer.BadParameter("--to-topic and --output contradict each other: give one")
    if keep and to_topic is None:
        raise typer.BadParameter("--keep is about a topic: give --to-topic")
    if (offset is not None and from_ is not None) or (end_offset is not None and to is not None):
        raise typer.BadParameter("an end of the range is a time or an offset, not both")
    if to_topic is not None and to_server in (None, server) and not to_profile and to_topic == topic:
        raise typer.BadParameter("a topic cannot be replayed into itself")
    from_ms, to_ms = parse_range(from_, to, wall_ms())
    state_file = state or (None if output_ is None else f"{output_}.state")
    target = f"topic {to_topic}" if to_topic else output_ or "standard output"
    began = steady_s()
    with Client(server) as source, _target_client(server, to_server, to_profile) as client:
        described = source.get(path("topics", topic))
        known = None if state_file is None else load_state(state_file, described["id"], target)
        current = known or State(
            described["id"], target, _parts(source, described, partition, (offset, from_ms), (end_offset, to_ms))
        )
        destination: Target
        if to_topic is not None:
            destination = IntoTopic(source, client, topic, to_topic)
            destination.prepare(current, keep=keep, fresh=known is None)
        else:
            file = sys.stdout.buffer if output_ is None else _open_output(output_, fresh=known is None)
            destination = Lines(topic, file)
        if known is not None:
            destination.resume(current)
        before = current.records
        _run(source, topic, current, destination, state_file, Pace(records_per_second, bytes_per_second))
    if state_file is not None:
        os.unlink(state_file)
    summary = {
        "topic": topic,
        "target": target,
        "records": current.records,
        "resumed_after": before,
        "seconds": round(steady_s() - began, 3),
    }
    if json and (to_topic is not None or output_ is not None):
        output.print_json(summary)
    else:
        output.note(f"{current.records:,} records of {topic} to {target} in {summary['seconds']:.1f} s")


def _run(client: Client, topic: str, state: State, target: Target, state_file: str | None, pace: Pace) -> None:
    if state_file is not None:
        state.save(state_file)
    try:
        _copy(client, topic, state, target, state_file, pace)
    except KeyboardInterrupt:
        again = f"; run it again to go on ({state_file})" if state_file else ""
        output.note(f"interrupted after {state.records:,} records{again}")
        raise typer.Exit(130) from None


def _copy(client: Client, topic: str, state: State, target: Target, state_file: str | None, pace: Pace) -> None:
    total = sum(part.end_offset - part.next_offset for part in state.parts)
    with output.progress(f"replay {topic}", total) as advance:
        waiting = [part for part in state.parts if part.next_offset < part.end_offset]
        while waiting:
            for part in waiting:
                page = _page(client, topic, part.partition, part.next_offset, pace.page(), pace.page_bytes())
                messages = [each for each in page["messages"] if each["offset"] < part.end_offset]
                if messages:
                    target.write(messages, part, state)
                following = min(page["next_offset"], part.end_offset)
                if following <= part.next_offset:
                    raise NothingThere(
                        f"offset {part.next_offset} cannot be read, though the partition ends at {part.end_offset}",
                        where=f"{topic}-{part.partition}",
                        hint="run it again; if it stays, look at the partition with `tierlog topic describe`",
                    )
                advance(following - part.next_offset)
                part.next_offset = following
                state.records += len(messages)
                if state_file is not None:
                    state.save(state_file)
                pace.wait(messages)
            waiting = [part for part in waiting if part.next_offset < part.end_offset]


def _page(
    client: Client, topic: str, partition: int, offset: int, limit: int, max_bytes: int = PAGE_BYTES
) -> dict[str, Any]:
    address = path("topics", topic, "partitions", partition, "messages")
    found: dict[str, Any] = client.get(address, offset=offset, limit=limit, max_bytes=max_bytes)
    return found


Bound = tuple[int | None, int | None]
"""An offset or a time in milliseconds."""


def _parts(
    client: Client, described: Mapping[str, Any], wanted: Sequence[int] | None, start: Bound, end: Bound
) -> list[Part]:
    topic = described["name"]
    parts = []
    for each in partitions_to_read(described, wanted):
        number = each["partition"]
        first = max(each["log_start_offset"], _offset_of(client, topic, number, start) or 0)
        last = each["last_stable_offset"]
        bound = _offset_of(client, topic, number, end)
        if bound is not None:
            last = min(last, bound)
        parts.append(Part(number, first, max(first, last)))
    return parts


def _offset_of(client: Client, topic: str, partition: int, bound: Bound) -> int | None:
    offset, time_ms = bound
    if time_ms is None:
        return offset
    address = path("topics", topic, "partitions", partition, "messages")
    query: dict[str, Any] = {"from": time_ms, "limit": 1}
    page = client.get(address, **query)
    found: int = page["messages"][0]["offset"] if page["messages"] else page["next_offset"]
    return found


def _match_partitions(client: Client, target: str, state: State, *, fresh: bool) -> None:
    partitions = partitions_to_read(client.get(path("topics", target)), None)
    missing = [part.partition for part in state.parts if part.partition >= len(partitions)]
    if missing:
        raise UnknownPartition(
            f"it has {len(partitions)} partitions, the replay needs {max(missing) + 1}",
            where=target,
            hint=f"`tierlog topic alter {target} --partitions {max(missing) + 1}` adds them",
        )
    if fresh:
        for part in state.parts:
            part.target_offset = partitions[part.partition]["high_watermark"]


def _retention_ms(client: Client, topic: str) -> int:
    config = {name: each["value"] for name, each in client.get(path("topics", topic))["config"].items()}
    by_time = "delete" in config["cleanup.policy"] and config["message.timestamp.type"] == "CreateTime"
    return int(config["retention.ms"]) if by_time else -1


def _open_output(name: str, *, fresh: bool) -> BinaryIO:
    try:
        return open(name, "xb" if fresh else "r+b")
    except OSError as error:
        hint = "it must not exist yet, or there must be a state file beside it"
        if fresh and isinstance(error, FileNotFoundError):
            hint = "make the folder first"
        raise StateMismatch(f"cannot be written: {error.strerror}", where=name, hint=hint) from None
