"""tierlog as a process: `tierlog serve` on a data directory. The line that it prints when it can serve tells its ports.

The first start takes any free ports. Later starts of the same object take the same ones, so that clients find the
broker again after a crash. Nothing of the service is imported.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.process import BrokerProcess

READY = re.compile(r"tierlog ready kafka=(\S+):(\d+) http=(\S+):(\d+)")


class TierlogServer(BrokerProcess):
    """`settings` are environment variables `TIERLOG_SECTION__KEY`, `arguments` are flags of `serve`."""

    name = "tierlog"

    def __init__(
        self,
        directory: Path,
        *,
        data_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(directory)
        self.data_dir = data_dir or directory / "data"
        self.settings = dict(settings or {})
        self.arguments = list(arguments)
        self.http_port = 0
        self._output_read = 0

    def command(self) -> Sequence[str]:
        self._output_read = self.log_path.stat().st_size if self.log_path.exists() else 0
        program = str(Path(sys.executable).with_name("tierlog"))
        listeners = ["--kafka", self.bootstrap, "--http", f"{self.host}:{self.http_port}"]
        return [program, "serve", "--data-dir", str(self.data_dir), *listeners, *self.arguments]

    def environment(self) -> dict[str, str]:
        return os.environ | self.settings

    def serving(self) -> bool:
        if not self.log_path.exists():
            return False
        with self.log_path.open("rb") as log:
            log.seek(self._output_read)
            ready = READY.search(log.read().decode(errors="replace"))
        if ready is None:
            return False
        self.port, self.http_port = int(ready[2]), int(ready[4])
        return super().serving()
