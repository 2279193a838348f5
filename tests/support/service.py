"""Real `tierlog serve` processes for tests: each on free ports with its own data directory, and always ended."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tierlog.process import ServeProcess

MakeService = Callable[..., ServeProcess]

QUICK = ("--set", "groups.initial_rebalance_delay_ms=0", "--set", "groups.offsets_topic_partitions=4")
"""Settings that only make a test shorter."""


@contextmanager
def services(directory: Path) -> Iterator[MakeService]:
    """Yields a function `(*flags, **environment) -> started ServeProcess`; whatever still runs at the end is killed."""
    with ExitStack() as started:

        def make(*flags: str, **environment: str) -> ServeProcess:
            number = len(list(directory.glob("node-*.out")))
            process = ServeProcess(directory / f"node-{number}", (*QUICK, *flags), environment)
            started.callback(process.kill)
            return process.start()

        yield make
