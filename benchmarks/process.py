"""A broker as a process: start, wait until it serves, stop, kill, pause, and what it costs.

For both brokers the same probe decides when they are ready, a Metadata answer that names at least one broker, so start
times can be compared. Nothing here imports the service.
"""

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Self

import psutil


class BrokerFailed(Exception):
    """The broker process did not start, or ended by itself. The text has the end of its log."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers_metadata(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Returns True once a Metadata v1 request for no topics is answered with a broker in it."""
    request = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 12 and struct.unpack(">iii", head)[1:] >= (7, 1)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float, interval_s: float = 0.02) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(interval_s)


class BrokerProcess:
    """One broker process on loopback. Subclasses give the command and find out the port."""

    name = "broker"
    start_timeout_s = 180.0
    stop_timeout_s = 30.0
    popen: ClassVar[type[subprocess.Popen[bytes]]] = subprocess.Popen
    """The class that starts the process. Tests have one that starts faster."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.host = "127.0.0.1"
        self.port = 0
        self.wrapper: Sequence[str] = ()  # put before the command: strace, a network namespace
        self.answers: Callable[[str, int], bool] = answers_metadata  # who needs a login asks otherwise
        self.start_seconds = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    # For subclasses

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def serving(self) -> bool:
        return self.answers(self.host, self.port)

    # Start and stop

    def start(self) -> Self:
        assert self.process is None, f"{self.name} runs already"
        began = time.monotonic()
        self.process = self._launch(self.popen)

        def ready() -> bool:
            if self.process is not None and self.process.poll() is not None:
                code, self.process = self.process.returncode, None
                raise BrokerFailed(f"{self.name} ended with {code} while starting:\n{self.log_tail()}")
            return self.serving()

        try:
            wait_for(ready, f"{self.name} to serve", self.start_timeout_s, interval_s=0.01)
        except TimeoutError as error:
            tail = self.log_tail()
            self.kill()
            raise BrokerFailed(f"{error}:\n{tail}") from None
        self.start_seconds = time.monotonic() - began
        return self

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL if that is not enough. Raises BrokerFailed if the broker had to be killed."""
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(f"{self.name} ignored SIGTERM:\n{self.log_tail()}") from None

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def start_and_kill_after(self, seconds: float) -> None:
        """Starts the broker and kills it after a while, ready or not."""
        process = self._launch(subprocess.Popen)
        time.sleep(seconds)
        process.kill()
        process.wait()

    def _launch(self, popen: "type[subprocess.Popen[bytes]]") -> "subprocess.Popen[bytes]":
        with self.log_path.open("ab") as log:
            return popen(
                [*self.wrapper, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
            )

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self.process else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # State and cost

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} does not run"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log_path(self) -> Path:
        return self.directory / f"{self.name}.out"

    def log_tail(self, lines: int = 30) -> str:
        if not self.log_path.exists():
            return "(no output)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))
