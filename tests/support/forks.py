"""`python -m tierlog …` and its workers without the second of imports: forked from a process that has them already.

`Popen` is `subprocess.Popen` in all but that: a real child process with its own streams, environment, directory, group
and signals. A start that is different from the server's in what is read while importing is a real one: other programs,
other variables than `READ_LATER`, a `preexec_fn`. Tests of the start itself use `subprocess.Popen`.
"""

import ctypes
import inspect
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tests.support.fork_server import Request

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = dict(os.environ)
"""As it is when the first test begins."""
READ_LATER: Final = re.compile("(TIERLOG|AWS|PYTEST|SPARK)_.*")
COMMAND: Final = [sys.executable, "-m", "tierlog"]
MODULES: Final = {
    tuple(COMMAND): "tierlog.__main__",
    (str(Path(sys.executable).with_name("tierlog")),): "tierlog.__main__",
    (sys.executable, "-m", "offloader.worker"): "offloader.worker",
    (sys.executable, "-m", "gateway.sql.worker"): "gateway.sql.worker",
}
"""What runs, by how the command begins."""
PARAMETERS: Final = tuple(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]
PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
PR_SET_CHILD_SUBREAPER: Final = 36


class ForkServer:
    """Started at the first use, or before; it ends with this process."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._turn = threading.Lock()

    def fork(self, request: Request, descriptors: list[int]) -> int:
        """Returns the process id of a new child of this process."""
        asking = self.start()
        with self._turn:
            _take_orphans(True)
            try:
                socket.send_fds(asking, [pickle.dumps(request)], descriptors)
                answer = asking.recv(100)
            finally:
                _take_orphans(False)
        assert answer, "the fork server has ended; it says why on standard error"
        return int(answer)

    def start(self) -> socket.socket:
        """Does not wait for its imports."""
        with self._turn:
            self._socket = self._socket or self._started()
        return self._socket

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                # A pool for matrices would be a thread before the fork.
                env={**ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
            )
        return ours


SERVER: Final = ForkServer()


class Popen(subprocess.Popen[Any]):
    def _execute_child(self, *given: Any) -> None:
        """Where `subprocess.Popen` forks and execs; the pipes are made before and used after."""
        start = SimpleNamespace(**dict(zip(PARAMETERS, given, strict=True)))
        environment = dict(os.environ if start.env is None else start.env)
        program = module_and_arguments(start.args)
        special = (start.preexec_fn, start.pass_fds, start.shell, start.executable, start.gid, start.gids, start.uid)
        if any(each not in (None, (), False) for each in special) or program is None or not can_fork(environment):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        request = Request(
            module=program[0],
            arguments=program[1],
            environment=environment,
            directory=os.path.join(os.getcwd(), os.fspath(start.cwd or "")),
            umask=_umask() if start.umask < 0 else start.umask,
            new_session=start.start_new_session,
            group=start.process_group,
        )
        ends = (start.p2cread, start.c2pwrite, start.errwrite)
        self.pid = SERVER.fork(request, [number if end == -1 else end for number, end in enumerate(ends)])
        self._child_created = True
        self._close_pipe_fds(*(getattr(start, name) for name in PIPES))  # type: ignore[attr-defined]


def module_and_arguments(command: Any) -> tuple[str, list[str]] | None:
    """Returns None for another program."""
    words = [os.fspath(each) for each in command]
    for begin, module in MODULES.items():
        if tuple(words[: len(begin)]) == begin:
            return module, words[len(begin) :]
    return None


def can_fork(environment: dict[str, str]) -> bool:
    """Whether it differs from the server's only in what is read after the imports; other systems have no subreapers."""
    differ = {name for name, _ in environment.items() ^ ENVIRONMENT.items()}
    return all(READ_LATER.fullmatch(name) for name in differ) and sys.platform == "linux"


def remember_environment() -> None:
    """To be called when all tests are loaded: some of the packages that they import set variables."""
    ENVIRONMENT.clear()
    ENVIRONMENT.update(os.environ)


def _take_orphans(wanted: bool) -> None:
    """Only while a fork is made: an orphan of another test's process is init's."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _umask() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^Umask:\s*(\d+)$", status, re.MULTILINE)
    assert found
    return int(found[1], 8)
