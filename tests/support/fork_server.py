"""A process that has imported the broker and forks: each fork is a `tierlog` command, or a worker of a broker, that
need not import it again.

`tests.support.forks` starts it and asks; `python -m tests.support.fork_server FD` where FD is a socket of packets. A
request is a `Request` and three file descriptors, the answer a process id. The new process is forked twice, so that the
kernel gives it to the asking process, which has said that it takes such orphans: it waits for it as for any child.
The server ends when the asking process does.
"""

import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Final, NoReturn

from offloader import failpoints

MODULES = (
    "tierlog.cli.app",
    "tierlog.kernel_cache",
    "tierlog.broker",
    "tierlog.client",
    "gateway.sql.worker",
    "duckdb",
)
LONGEST = 1 << 20
PR_SET_PDEATHSIG: Final = 1
HARMLESS_THREADS = {"jemalloc_bg_thd"}
"""Arrow's; its allocator stops it in a fork, and nothing here allocates with it."""


@dataclass(frozen=True)
class Request:
    module: str
    """Its `main` is called."""
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    umask: int
    new_session: bool
    group: int
    """As `process_group` of Popen: -1 for the server's."""


def main() -> None:
    # Not ignored: one that a child gets in its first moments must reach it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    from gateway.kafka.apis import load_handlers

    for module in MODULES:
        importlib.import_module(module)
    load_handlers()
    gc.collect()
    gc.freeze()
    asked = socket.socket(fileno=int(sys.argv[1]))
    if (others := threads() - HARMLESS_THREADS) != set():
        raise SystemExit(f"cannot fork safely: the imports have started threads: {', '.join(sorted(others))}")
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, LONGEST, 3)
        if not message:
            return
        asked.send(str(fork_twice(pickle.loads(message), descriptors, asked)).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def threads() -> set[str]:
    """Names of those beside the main thread."""
    found = set()
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != os.getpid():
            with open(f"/proc/self/task/{thread}/comm") as name:
                found.add(name.read().strip())
    return found


def fork_twice(request: Request, descriptors: list[int], asked: socket.socket) -> int:
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        between = os.getpid()
        child = os.fork()
        if child == 0:
            os.close(read)
            os.close(write)
            asked.close()
            end_with_new_parent(between)
            become(request, descriptors)
        os.write(write, str(child).encode())
        os._exit(0)
    os.close(write)
    # The child has its new parent when the process between is gone.
    os.waitpid(between, 0)
    with open(read) as pipe:
        return int(pipe.read())


def end_with_new_parent(old: int) -> None:
    """A test run that is interrupted or killed leaves no broker behind."""
    while os.getppid() == old:
        time.sleep(0.0005)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def become(request: Request, descriptors: list[int]) -> NoReturn:
    """What the kernel and the interpreter do at the start of `python -m …`."""
    code = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, max(descriptors) + 1)
        if request.new_session:
            os.setsid()
        if request.group >= 0:
            os.setpgid(0, request.group)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.umask(request.umask)
        os.chdir(request.directory)
        os.environ.clear()
        os.environ.update(request.environment)
        # They are chosen by the environment, and are of one process.
        importlib.reload(failpoints)
        sys.path[0] = request.directory
        sys.argv = ["tierlog", *request.arguments]
        importlib.import_module(request.module).main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    # Pickled requests name the class by its module.
    from tests.support import fork_server

    fork_server.main()
