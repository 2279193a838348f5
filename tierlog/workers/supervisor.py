"""The process that runs the workers of one host, and keeps their metadata unless etcd has it.

- It holds the addresses and the data directories from before the first worker starts until the last one has ended. A
  port stays a worker's own while it is started again.
- All workers start together. If one of them cannot, none is left running, and its exit code is the service's.
- Later a worker that ends is started again, at first at once, then after longer and longer pauses. What others know
  of it ends before that, so its leaderships move where another replica is in sync.
- SIGTERM and Ctrl-C stop all: each hands over what it leads. A second one ends them at once.
- Workers end with the supervisor, however it ends: the kernel kills them. So nobody keeps a port, a lock or a lease.
"""

import asyncio
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import structlog

from hot_tier.clock import steady_s
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import CLIENTS, KAFKA_PROTOCOLS
from hot_tier.cluster.open import METADATA_FILE, SOCKET_FILE
from hot_tier.cluster.served import StoreServer
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import check_knows, topics_on_disk
from hot_tier.errors import SettingsError, TierlogError
from hot_tier.ids import NodeId
from tierlog.exclusive import address, bind, lock_directory
from tierlog.listeners import Plan, WorkerPorts, plan_listeners
from tierlog.process import READY, end_with_parent
from tierlog.settings import Settings
from tierlog.workers.layout import check_home, worker_directory, workers_in
from tierlog.workers.plan import Worker, data_dirs_of, own_ports, plan_workers

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""A worker that ran for so long did not fail because of how it starts."""

_log = structlog.get_logger()


def next_pause_s(last_s: float, lived_s: float) -> float:
    """Returns how long to wait before a worker is started again."""
    return FIRST_PAUSE_S if lived_s >= STEADY_S or not last_s else min(2 * last_s, LONGEST_PAUSE_S)


def run_workers(settings: Settings, ready: Callable[[str, str], None]) -> int:
    """Serves until SIGTERM or SIGINT. Returns the exit code. `ready` is told the addresses for Kafka and HTTP once all
    workers are ready."""
    if sys.platform != "linux":
        raise SettingsError("workers need Linux", where="--workers", hint="leave it out: one broker serves anywhere")
    return asyncio.run(_run(settings, ready))


async def _run(settings: Settings, ready: Callable[[str, str], None]) -> int:
    async with AsyncExitStack() as parts:
        planned = plan_workers(settings)
        ports, kafka, http = _reserve(plan_listeners(settings), len(planned), parts)
        workers = [worker._replace(ports=mine) for worker, mine in zip(planned, ports, strict=True)]
        dirs = data_dirs_of(settings)
        for data_dir in dirs:
            parts.enter_context(lock_directory(data_dir))
        check_home(dirs, embedded=settings.cluster.embedded)
        store = await _serve_metadata(dirs, parts) if settings.cluster.embedded else None
        return await Supervisor(workers, store, lambda: ready(kafka, http)).run()


def _reserve(
    plans: Sequence[Plan], workers: int, parts: AsyncExitStack
) -> tuple[list[dict[str, WorkerPorts]], str, str]:
    """Binds every address and never listens, so that nobody else gets it. Returns where each worker listens, and the
    addresses for Kafka and HTTP that they have in common."""
    found: list[dict[str, WorkerPorts]] = [{} for _ in range(workers)]
    common: dict[bool, str] = {}

    def hold(plan: Plan, port: int) -> socket.socket:
        bind(plan.host, port, plan.where, plan.flag).close()  # raises if somebody listens there
        held = bind(plan.host, port, plan.where, plan.flag, shared=True)
        parts.callback(held.close)
        return held

    for plan in plans:
        shared: tuple[int, ...] = ()
        if CLIENTS in plan.takes:
            held = hold(plan, plan.port)
            shared = (held.getsockname()[1],)
            common.setdefault(plan.protocol in KAFKA_PROTOCOLS, address(held))
        for turn, (mine, port) in enumerate(zip(found, own_ports(plan, workers), strict=True), 1):
            own = hold(plan, port).getsockname()[1]
            told = plan.advertised_port + turn if plan.advertised_port else own
            mine[plan.name] = WorkerPorts((own, *shared), told)
    return found, common[True], common[False]


async def _serve_metadata(data_dirs: Sequence[str], parts: AsyncExitStack) -> SqliteStore:
    home = data_dirs[0]
    store = SqliteStore(os.path.join(home, METADATA_FILE))
    await store.open()
    parts.push_async_callback(store.close)
    for data_dir in data_dirs:
        for number in workers_in(data_dir):
            directory = worker_directory(data_dir, number)
            if (on_disk := topics_on_disk(directory)) is not None:
                await check_knows(store, directory, on_disk)
    server = StoreServer(store, os.path.join(home, SOCKET_FILE))
    await server.start()
    parts.push_async_callback(server.close)
    return store


class Supervisor:
    def __init__(self, workers: Sequence[Worker], store: SqliteStore | None, ready: Callable[[], None]) -> None:
        self._workers = workers
        self._store = store
        self._announce = ready
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._unready = {worker.number for worker in workers}
        self._stopping = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        """Returns the exit code once no worker runs any more."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._tell, signal.SIGHUP)
        _log.info("starting", workers=len(self._workers), first=self._workers[0].number)
        keeping = [loop.create_task(self._keep(worker)) for worker in self._workers]
        try:
            await asyncio.gather(*keeping)
        finally:
            for process in self._processes.values():
                process.kill()
        _log.info("stopped")
        return self._code

    def _asked_to_stop(self) -> None:
        if self._stopping.is_set():
            self._tell(signal.SIGKILL)
            return
        _log.info("stopping")
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, worker: Worker) -> None:
        """Runs the worker until the service stops."""
        pause_s = 0.0
        while not self._stopping.is_set():
            began_s = steady_s()
            code = await self._run_once(worker)
            if self._stopping.is_set():
                return
            if self._unready:
                _log.error("a worker cannot start, so none does", worker=worker.number, how=how_it_ended(code))
                self._code = code if code > 0 else 1
                self._stop()
                return
            pause_s = next_pause_s(pause_s, steady_s() - began_s)
            _log.error(
                "a worker ended, it is started again", worker=worker.number, how=how_it_ended(code), in_s=pause_s
            )
            await self._end_lease(worker)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _run_once(self, worker: Worker) -> int:
        process = self._processes[worker.number] = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tierlog.workers.worker",
            str(worker.number),
            worker.settings.log.data_dir,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=end_with_parent,
            process_group=0,  # a Ctrl-C at the terminal is for the supervisor alone
        )
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(pickle.dumps(worker))
            process.stdin.close()
            async for line in process.stdout:
                if READY.search(line.decode(errors="replace")):
                    self._ready(worker)
            return await process.wait()
        finally:
            del self._processes[worker.number]

    def _ready(self, worker: Worker) -> None:
        if worker.number in self._unready:
            self._unready.remove(worker.number)
            if not self._unready:
                self._announce()

    async def _end_lease(self, worker: Worker) -> None:
        """Its process is gone: others need not wait until its registration ends by itself."""
        if self._store is None:
            return
        key = model.broker_key(NodeId(worker.number))
        try:
            if (item := await self._store.get(key)) is not None:
                await self._store.revoke_lease(model.decode_broker(key, item.value, item.revision).lease)
        except TierlogError as error:
            _log.warning("lease not ended, it will expire", worker=worker.number, error=str(error))


def how_it_ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
