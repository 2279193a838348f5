"""The figures of `python -m benchmarks.scale` for docs/CAPACITY.md."""

from collections.abc import Iterator
from typing import Any

BEGIN = "<!-- figures: written by python -m benchmarks.scale --write-docs -->"


def markdown(found: dict[str, Any]) -> str:
    machine = found["machine"]
    facts = (
        f"{machine['cores']} cores of {machine['cpu']}, shared with the clients, etcd and other work "
        f"({found['busy_cores']:.1f} cores were busy on average); tierlog {found['commit']}. p99 is from producer to "
        f"consumer, 500 records of 1 KB a second, on the disk before the ack."
    )
    return "\n".join([facts, "", *_metadata(found["metadata"]), "", *_connections(found["connections"])])


def _metadata(sizes: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        "| partitions in the cluster | without any | " + " | ".join(f"{each['partitions']:,}" for each in sizes) + " |"
    )
    yield "|---|---:|" + "---:|" * len(sizes)
    first = sizes[0]
    for name, without, key in (
        ("memory of one broker, MB", first["memory without, MB"], "memory with, MB"),
        ("its start, s", first["start without, s"], "start with, s"),
        ("p99 of a producer, ms", first["p99 without, ms"], "p99 with, ms"),
        ("Metadata answer with one topic of 100 partitions, ms", None, "answer with one topic, ms"),
        ("Metadata answer with all topics, ms", None, "answer with all topics, ms"),
        ("the same, MB", None, "answer with all topics, MB"),
        ("one of 390 brokers is lost: partitions that it led", None, "leaders that a lost broker had"),
        ("until etcd has all their new leaders, s", None, "new leaders after, s"),
    ):
        yield f"| {name} | {_shown(without)} | " + " | ".join(_shown(each[key]) for each in sizes) + " |"


def _connections(found: dict[str, Any]) -> Iterator[str]:
    idle = f"{found['connections']:,} idle connections"
    stages = {
        "alone": "alone",
        "with connections": f"with {idle}",
        "with connections and groups": f"with {idle} and {found['groups']:,} groups with a member each",
    }
    yield "| one broker | memory, MB | cores, while nobody produces | p99 of a producer, ms |"
    yield "|---|---:|---:|---:|"
    for key, name in stages.items():
        figures = (found[f"memory {key}, MB"], found[f"cores {key}"], found[f"p99 {key}, ms"])
        yield f"| {name} | " + " | ".join(map(_shown, figures)) + " |"
    yield ""
    yield (
        f"All connections were made in {found['time to connect, s']:.1f} s, and all groups had joined after "
        f"{found['time to join, s']:.1f} s. The broker then had {found['open files']:,} open files."
    )


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return (
        f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
    )
