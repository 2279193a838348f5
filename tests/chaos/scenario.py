"""One chaotic run: a topic, the load on it, and the verdict at the end."""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.process import wait_for

from .checker import EVERY, ONE_ACK_ALONE, Check, violations, watermarks_never_go_back
from .history import History, Outcome
from .workload import ConsumerWorker, ProducerWorker, WatermarkWorker, Worker, read_committed_offsets, read_log

NOBODY: Mapping[str, str] = {}
"""How to come in where no login is wanted."""


def chosen_seed() -> int:
    seed = int(os.environ.get("TIERLOG_CHAOS_SEED", random.randrange(1 << 30)))
    print(f"TIERLOG_CHAOS_SEED={seed}")
    return seed


def make_topic(
    bootstrap: str,
    name: str,
    partitions: int,
    config: dict[str, str] | None = None,
    replicas: int = 1,
    login: Mapping[str, str] = NOBODY,
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **login})
    admin.create_topics([NewTopic(name, partitions, replicas, config=config or {})])[name].result(20)
    wait_for(lambda: name in admin.list_topics(timeout=10).topics, f"topic {name}", 20)


class Scenario:
    """`with Scenario(…) as run:` keeps the load going; `run.verdict()` ends it and checks everything."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        *,
        seed: int | None = None,
        producers: int = 4,
        consumers: int = 2,
        partitions: int = 3,
        rate: int = 250,
        config: dict[str, str] | None = None,
        replicas: int = 1,
        acks: str = "all",
        checks: Sequence[Check] = EVERY,
        login: Mapping[str, str] = NOBODY,
    ) -> None:
        self.seed = seed or chosen_seed()
        self.random = random.Random(self.seed)
        self.history = History()
        self.topic = f"chaos-{self.seed}-acks-{acks}"
        self.partitions = partitions
        self._group = f"{self.topic}-group"
        self._client = {"bootstrap.servers": bootstrap, **login}
        self._directory, self._checks = directory, checks
        make_topic(bootstrap, self.topic, partitions, config, replicas, login)
        self.producers = [
            ProducerWorker(
                f"p{n}",
                self._client,
                self.topic,
                partitions,
                self.history,
                random.Random(self.random.random()),
                rate,
                acks,
            )
            for n in range(producers)
        ]
        self._consumers = [
            ConsumerWorker(f"c{n}", self._client, self.topic, self._group, self.history) for n in range(consumers)
        ]
        self._watchers: list[Worker] = []
        if watermarks_never_go_back in checks:
            self.watch(WatermarkWorker(self._client, self.topic, partitions, self.history))

    def __enter__(self) -> Self:
        for worker in (*self.producers, *self._consumers, *self._watchers):
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self.producers, *self._consumers, *self._watchers):
            worker.ask_to_stop()

    def watch(self, *watchers: Worker) -> None:
        """More workers on the same history, before the load begins."""
        self._watchers += watchers

    def wait_for_acks(self, timeout_s: float = 40) -> None:
        """The service is back: every producer has something acknowledged that was asked from now on."""
        since = time.monotonic_ns()
        wait_for(
            lambda: all(producer.last_ack_ns > since for producer in self.producers) or bool(self.history.complaints),
            "every producer to get an acknowledgement",
            timeout_s,
        )

    def wait_for_reads(self, timeout_s: float = 40) -> None:
        """The group is back: it reads on."""
        before = len(self.history.reads)
        wait_for(lambda: len(self.history.reads) > before + 200, "the group to read on", timeout_s)

    def wait_for_service(self, round_: int) -> None:
        """Producers are served before the next fault; in every third round the group, which takes longer, too."""
        self.wait_for_acks()
        if round_ % 3 == 2:
            self.wait_for_reads()

    def verdict(self, before_reading: Callable[[], None] = lambda: None) -> History:
        """Ends the load, reads everything back and checks it."""
        self.finish(before_reading)
        self.judge()
        return self.history

    def finish(self, before_reading: Callable[[], None] = lambda: None) -> None:
        for worker in (*self.producers, *self._watchers):
            worker.finish()
        read_log(self._client, self.topic, self.partitions, self.history)
        for worker in self._consumers:
            worker.finish()
        before_reading()
        if self._consumers:
            read_committed_offsets(self._client, self.topic, self.partitions, self._group, self.history)

    def judge(self) -> None:
        found = violations(self.history, self._checks)
        if found:
            record = self.history.write(self._directory / f"history-{self.topic}.txt")
            shown = "\n".join(found[:20])
            raise AssertionError(f"seed {self.seed}: {len(found)} violations, history in {record}:\n{shown}")
        sends = self.history.sends
        unanswered = sum(send.outcome is Outcome.PENDING for send in sends)
        print(
            f"{len(sends)} sent, {self.history.acknowledged} acknowledged, {len(self.history.reads)} read by the group"
        )
        assert not unanswered, f"{unanswered} sends were never answered after the last fault"


@contextmanager
def with_all_acks_and_with_one(bootstrap: str, directory: Path, **options: Any) -> Iterator[list[Scenario]]:
    """Two loads at once on one broker, on a topic each."""
    seed = options.pop("seed", None) or chosen_seed()
    runs = [
        Scenario(bootstrap, directory, seed=seed, **options),
        Scenario(bootstrap, directory, seed=seed, acks="1", checks=ONE_ACK_ALONE, producers=2, consumers=1, **options),
    ]
    with runs[0], runs[1]:
        yield runs
