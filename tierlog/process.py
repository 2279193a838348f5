"""One `tierlog serve` as a child process on loopback: start, wait for its ready line, stop, kill -9, start again.

The demo and the tests run the service through this. The first start takes free ports. Later starts take the same ports,
as clients that reconnect expect. Nothing of the service is imported, so this sees only what any outsider sees.
"""

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Self

from hot_tier.clock import steady_s
from hot_tier.errors import TierlogError

READY = re.compile(r"tierlog ready kafka=(?P<kafka>\S+:(?P<kafka_port>\d+)) http=(?P<http>\S+:(?P<http_port>\d+))\s")
START_TIMEOUT_S = 120.0
"""A first start compiles kernels, and tests share their machine with others."""
STOP_TIMEOUT_S = 30.0

PR_SET_PDEATHSIG: Final = 1
_PRCTL: Final = getattr(ctypes.CDLL(None), "prctl", None)


def end_with_parent() -> None:
    """A new process calls this before its program. Linux then kills it when the thread that made it ends."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def print_ready(kafka: str, http: str) -> None:
    """Tells whoever started this process that clients can come in."""
    print(f"tierlog ready kafka={kafka} http={http}", flush=True)


class ServeFailed(TierlogError):
    """The process ended or hung instead of getting ready or stopping. The text has the end of its output."""

    def __str__(self) -> str:
        return self.what  # whole: the reason stands at its end


class ServeProcess:
    popen: ClassVar[type[subprocess.Popen[bytes]]] = subprocess.Popen
    """The class that starts the process. Tests have one that starts faster."""

    def __init__(
        self,
        data_dir: Path,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        *,
        held: bool = False,
    ) -> None:
        """With `held` the process ignores a Ctrl-C at the terminal, and ends with the thread that started it."""
        self.data_dir = data_dir
        self.output_path = data_dir.with_name(f"{data_dir.name}.out")
        self.flags = tuple(flags)
        self.environment = {**os.environ, **(environment or {})}
        self._held = held
        self.kafka = "127.0.0.1:0"
        self.http = "127.0.0.1:0"
        self.scheme = "http"
        self.start_seconds = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self._began = 0.0

    def start(self) -> Self:
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        assert self.process is None, "it runs already"
        command = [sys.executable, "-m", "tierlog", "serve", "--data-dir", str(self.data_dir)]
        command += ["--kafka", self.kafka, "--http", self.http, *self.flags]
        self._began = steady_s()
        with self.output_path.open("ab") as output:
            self.process = self.popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                env=self.environment,
                process_group=0 if self._held else None,
                preexec_fn=end_with_parent if self._held else None,
            )

    def wait_until_ready(self) -> None:
        try:
            ready = self._ready_line(self._began + START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise
        self.start_seconds = steady_s() - self._began
        self.kafka, self.http = ready["kafka"], ready["http"]

    def stop(self) -> None:
        """Sends SIGTERM. Raises ServeFailed if the process then has to be killed or ends with an error."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServeFailed(f"ignored SIGTERM for {STOP_TIMEOUT_S:.0f} s\n{self.output()}") from None
        finally:
            if process.stdout:
                process.stdout.close()
        if code:
            raise ServeFailed(f"ended with exit code {code} after SIGTERM\n{self.output()}")

    def kill(self) -> None:
        """Sends SIGKILL: no handler runs, nothing is flushed."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def __enter__(self) -> Self:
        return self if self.process else self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    @property
    def pid(self) -> int:
        assert self.process is not None, "it does not run"
        return self.process.pid

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.http}"

    def output(self, lines: int = 40) -> str:
        """Returns the end of what it wrote to standard error."""
        return "\n".join(self.output_path.read_text(errors="replace").splitlines()[-lines:])

    def _ready_line(self, deadline: float) -> Mapping[str, str]:
        assert self.process is not None and self.process.stdout is not None
        pipe, text = self.process.stdout.fileno(), ""
        while True:
            if found := READY.search(text):
                return found.groupdict()
            readable, _, _ = select.select([pipe], [], [], max(0.0, deadline - steady_s()))
            if not readable:
                raise ServeFailed(f"was not ready within {START_TIMEOUT_S:.0f} s\n{self.output()}")
            part = os.read(pipe, 4096)
            if not part:
                code = self.process.wait()
                raise ServeFailed(f"ended with exit code {code} while starting\n{self.output()}")
            text += part.decode(errors="replace")
