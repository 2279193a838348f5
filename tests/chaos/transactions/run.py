"""One run: two topics for writers, one for what streams make of the first, and the verdict over all of them."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import confluent_kafka as ck

from benchmarks.process import wait_for
from tests.chaos.scenario import NOBODY, chosen_seed, make_topic
from tests.chaos.values import read_value
from tests.chaos.workload import ANSWER_S, NOT_YET, Worker, read_partition

from .checker import EVERY, Check, violations
from .history import Ending, History, Place, Row
from .workload import ALL, COMMITTED, PATIENCE_MS, CommittedReader, EndsReader, Stream, TransactionalWorker, Writer
from .workload import reader as new_reader

Archive = Callable[[History, Mapping[Place, int]], None]


class TransactionRun:
    """`with TransactionRun(…) as run:` keeps the load going; `run.verdict()` ends it and checks everything."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        *,
        seed: int | None = None,
        writers: int = 3,
        streams: int = 2,
        readers: int = 2,
        partitions: int = 2,
        rate: float = 10,
        config: dict[str, str] | None = None,
        replicas: int = 1,
        checks: Sequence[Check] = EVERY,
        login: Mapping[str, str] = NOBODY,
        patience_ms: int = PATIENCE_MS,
        stalls: bool = False,
        isolation: str = COMMITTED,
    ) -> None:
        """`isolation`: of all who are held to read committed records only."""
        self.seed = seed or chosen_seed()
        self.random = random.Random(self.seed)
        self.history = History()
        self._client = {"bootstrap.servers": bootstrap, **login}
        self._directory, self._checks, self._isolation = directory, checks, isolation
        self.topics = [f"txn-{self.seed}-{name}" for name in ("in", "side", "out")]
        for topic in self.topics:
            make_topic(bootstrap, topic, partitions, config, replicas, login)
        given, side, out = ([Place(topic, number) for number in range(partitions)] for topic in self.topics)
        self.places, self._given = [*given, *side, *out], given
        self._group = f"txn-{self.seed}-group"
        self.workers: list[TransactionalWorker] = [
            Writer(
                f"w{n}-{self.seed}",
                self._client,
                [*given, *side],
                self.history,
                self._source(),
                rate=rate,
                patience_ms=patience_ms,
            )
            for n in range(writers)
        ]
        self.workers += [
            Stream(
                f"s{n}-{self.seed}",
                self._client,
                self._group,
                self.topics[0],
                out,
                self.history,
                self._source(),
                patience_ms=patience_ms,
                stalls=stalls,
            )
            for n in range(streams)
        ]
        self._readers: list[Worker] = [
            CommittedReader(f"r{n}", self._client, self.places, self.history, self._source(), isolation)
            for n in range(readers)
        ]
        self._ends = EndsReader(self._client, self.places, self.history)
        self._readers.append(self._ends)

    def _source(self) -> random.Random:
        return random.Random(self.random.random())

    def __enter__(self) -> Self:
        for worker in (*self.workers, *self._readers):
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self.workers, *self._readers):
            worker.ask_to_stop()

    def wait_for_commits(self, timeout_s: float = 60) -> None:
        """The service is back: every writer, and a stream, has committed what it began from now on."""
        since = time.monotonic_ns()
        writers = [worker for worker in self.workers if isinstance(worker, Writer)]
        streams = [worker for worker in self.workers if isinstance(worker, Stream)]

        def all_go_on() -> bool:
            back = all(worker.last_commit_ns > since for worker in writers)
            return back and (not streams or any(worker.last_commit_ns > since for worker in streams))

        try:
            wait_for(
                lambda: all_go_on() or bool(self.history.complaints), "every writer and a stream to commit", timeout_s
            )
        except TimeoutError:
            late = "\n".join(worker.state() for worker in self.workers)
            raise TimeoutError(f"seed {self.seed}: not all commit within {timeout_s:.0f} s:\n{late}") from None

    def verdict(self, archive: Archive | None = None) -> History:
        self.finish(archive)
        self.judge()
        return self.history

    def finish(self, archive: Archive | None = None) -> None:
        """Ends the load and reads everything back. `archive` adds what it finds, given where each partition ends."""
        for worker in (*self.workers, *self._readers):
            worker.ask_to_stop()
        for worker in self.workers:
            worker.finish()
        self._wait_until_nothing_is_open()
        for worker in self._readers:
            worker.finish()
        self._work_off_the_input()
        ends = self._wait_until_nothing_is_open()
        for view, isolation in ((self.history.committed, self._isolation), (self.history.everything, ALL)):
            for place in self.places:
                found = read_partition(self._client | {"isolation.level": isolation}, place.topic, place.number)
                view[place] = [Row(offset, read_value(value)) for offset, value in found]
        self._read_positions()
        if archive is not None:
            archive(self.history, ends)

    def _wait_until_nothing_is_open(self) -> dict[Place, int]:
        """All workers have ended their transactions: what is still held back would hang for ever."""
        asking = EndsReader(self._client, self.places, History())
        ends: dict[Place, int] = {}

        def closed() -> bool:
            for place in self.places:
                found = asking.ask(place)
                if found is None or found.stable != found.high:
                    return False
                ends[place] = found.high
            return True

        wait_for(closed, "every transaction to be over for readers", ANSWER_S, interval_s=0.2)
        return ends

    def _work_off_the_input(self) -> None:
        """A last member works off what is left, so that all that was committed has its output."""
        if not any(isinstance(worker, Stream) for worker in self.workers):
            return
        places = [place for place in self.places if place.topic == self.topics[2]]
        last = Stream(
            f"last-{self.seed}", self._client, self._group, self.topics[0], places, self.history, self._source()
        )
        self.workers.append(last)
        last.start()
        wait_for(self._has_caught_up, "the stream to work off its input", ANSWER_S, interval_s=0.3)
        last.finish()

    def _has_caught_up(self) -> bool:
        self._read_positions()
        wanted = {
            place: max((row.offset for row in self._committed_rows(place)), default=-1) + 1 for place in self._given
        }
        return all(self.history.positions.get((self._group, place), 0) >= end for place, end in wanted.items())

    def _committed_rows(self, place: Place) -> list[Row]:
        if place not in self.history.committed:
            client = self._client | {"isolation.level": COMMITTED}
            found = read_partition(client, place.topic, place.number)
            self.history.committed[place] = [Row(offset, read_value(value)) for offset, value in found]
        return self.history.committed[place]

    def _read_positions(self) -> None:
        consumer = new_reader(self._client, self._group, COMMITTED)
        wanted = [ck.TopicPartition(*place) for place in self._given]
        deadline = time.monotonic() + ANSWER_S
        try:
            while True:
                try:
                    found = consumer.committed(wanted, timeout=5)
                    break
                except ck.KafkaException as error:
                    if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                        raise
        finally:
            consumer.close()
        for tp in found:
            assert tp.error is None, tp.error
            self.history.positions[self._group, Place(tp.topic, tp.partition)] = max(tp.offset, 0)

    def judge(self) -> None:
        history = self.history
        found = violations(history, self._checks)
        errors = sum((worker.errors for worker in self.workers), Counter[str]())
        print(
            f"{len(history.transactions)} transactions: "
            + ", ".join(f"{history.count(ending)} {ending.value}" for ending in Ending)
            + f"; {sum(map(len, history.committed.values()))} committed of "
            f"{sum(map(len, history.everything.values()))} records, {len(history.seen)} seen; errors {dict(errors)}"
        )
        if found:
            record = history.write(self._directory / f"history-{self.topics[0]}.txt")
            shown = "\n".join(found[:20])
            raise AssertionError(f"seed {self.seed}: {len(found)} violations, history in {record}:\n{shown}")
