"""`python -m tierlog …` without the second of imports: forked from a process that has them already.

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
"""As it was when the tests were loaded: no test has changed it yet."""
READ_LATER: Final = re.compile("(TIERLOG|AWS|PYTEST)_.*")
READ_AT_IMPORT: Final = "TIERLOG_FAILPOINTS"
COMMAND: Final = [sys.executable, "-m", "tierlog"]
SCRIPT: Final = [str(Path(sys.executable).with_name("tierlog"))]
"""The same, as installed."""
PARAMETERS: Final = tuple(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]
PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
PR_SET_CHILD_SUBREAPER: Final = 36


class ForkServer:
    """Started at the first use; it ends with this process."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._turn = threading.Lock()

    def fork(self, request: Request, descriptors: list[int]) -> int:
        """Returns the process id of a new child of this process."""
        with self._turn:
            self._socket = self._socket or self._start()
            _take_orphans(True)
            try:
                socket.send_fds(self._socket, [pickle.dumps(request)], descriptors)
                answer = self._socket.recv(100)
            finally:
                _take_orphans(False)
        assert answer, "the fork server has ended; it says why on standard error"
        return int(answer)

    def _start(self) -> socket.socket:
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
        arguments = after_the_name(start.args)
        special = (start.preexec_fn, start.pass_fds, start.shell, start.executable, start.gid, start.gids, start.uid)
        if any(each not in (None, (), False) for each in special) or arguments is None or not can_fork(environment):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        request = Request(
            arguments=arguments,
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


def after_the_name(command: Any) -> list[str] | None:
    """Returns the arguments of `tierlog`; None for another program."""
    words = [os.fspath(each) for each in command]
    for name in (COMMAND, SCRIPT):
        if words[: len(name)] == name:
            return words[len(name) :]
    return None


def can_fork(environment: dict[str, str]) -> bool:
    """Whether it differs from the server's only in what is read after the imports; other systems have no subreapers."""
    differ = {name for name, _ in environment.items() ^ ENVIRONMENT.items()}
    later = READ_AT_IMPORT not in environment and all(READ_LATER.fullmatch(name) for name in differ)
    return later and sys.platform == "linux"


def _take_orphans(wanted: bool) -> None:
    """Only while a fork is made: an orphan of another test's process is init's."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _umask() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^Umask:\s*(\d+)$", status, re.MULTILINE)
    assert found
    return int(found[1], 8)
