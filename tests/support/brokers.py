"""A cluster of real `tierlog serve` processes that share an etcd and a bucket, always ended at the end of the test."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.etcd import etcd
from tests.support.service import QUICK
from tierlog.client import Client, path
from tierlog.process import ServeProcess


@dataclass
class Brokers:
    directory: Path
    metadata: str
    stack: ExitStack
    by_node: dict[int, ServeProcess]

    def add(self, node: int, *flags: str) -> ServeProcess:
        """Made, not started."""
        shared = ["--metadata", self.metadata, "--bucket", f"file://{self.directory / 'bucket'}"]
        process = ServeProcess(self.directory / f"broker-{node}", (*QUICK, "--node-id", str(node), *shared, *flags))
        self.stack.callback(process.kill)
        self.by_node[node] = process
        return process

    def start_all(self, racks: Mapping[int, str], *flags: str) -> None:
        """Brokers of these numbers on these racks, at once."""
        made = [self.add(node, *(("--rack", rack) if rack else ()), *flags) for node, rack in racks.items()]
        with ThreadPoolExecutor() as starting:
            list(starting.map(ServeProcess.start, made))

    def __getitem__(self, node: int) -> ServeProcess:
        return self.by_node[node]

    @property
    def bootstrap(self) -> str:
        return ",".join(process.kafka for process in self.by_node.values() if process.process is not None)


@contextmanager
def cluster(directory: Path, *flags: str, size: int = 3) -> Iterator[Brokers]:
    """Brokers 1 to `size`, started."""
    with ExitStack() as stack:
        brokers = Brokers(directory, stack.enter_context(etcd()), stack, {})
        brokers.start_all(dict.fromkeys(range(1, size + 1), ""), *flags)
        yield brokers


def make_topic(brokers: Brokers, name: str, **config: Any) -> None:
    with Client(brokers[1].url) as client:
        client.post(path("topics"), {"name": name, **config})


def partitions(brokers: Brokers, topic: str, through: int = 1) -> list[dict[str, Any]]:
    """As the broker of that number describes them."""
    with Client(brokers[through].url) as client:
        found: list[dict[str, Any]] = client.get(path("topics", topic))["partitions"]
        return found
