"""Runs the whole script against two brokers and pairs the answers."""

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peer.kafka import KafkaServer
from benchmarks.service import TierlogServer

from .plain import differences
from .script import courses, groups, records, settings, tools, topics, transactions
from .session import Session


class Difference(NamedTuple):
    question: str
    path: str
    kafka: Any
    tierlog: Any


class Outcome(NamedTuple):
    questions: int
    found: list[Difference]
    versions: dict[int, tuple[range | None, range | None]]
    """By API key: what Kafka advertises, and what we do."""


def compare(directory: Path) -> Outcome:
    kafka_dir, ours_dir = directory / "kafka", directory / "tierlog"
    kafka_dir.mkdir()
    ours_dir.mkdir()
    with (
        KafkaServer(kafka_dir, {"auto.create.topics.enable": "true"}, heap="512M") as kafka,
        TierlogServer(ours_dir, arguments=["--node-id", "1"]) as tierlog,
    ):
        sessions = [Session(server.host, server.port) for server in (kafka, tierlog)]
        theirs, ours = sessions
        shared = {
            key: range(max(span.start, ours.versions[key].start), min(span.stop, ours.versions[key].stop))
            for key, span in theirs.versions.items()
            if key in ours.versions
        }
        for session in sessions:
            session.shared = shared
            for area in (topics, records, groups, settings, tools, transactions, courses):
                area.run(session)
            session.close()
    found = []
    for question in theirs.answers | ours.answers:
        a, b = theirs.answers.get(question, "not asked"), ours.answers.get(question, "not asked")
        found += [Difference(question, *one) for one in differences(a, b)]
    versions = {
        key: (theirs.versions.get(key), ours.versions.get(key)) for key in sorted(theirs.versions | ours.versions)
    }
    return Outcome(len(theirs.answers), found, versions)
