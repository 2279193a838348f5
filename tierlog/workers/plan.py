"""Which workers there are, where each one listens, and its settings: decisions, from the settings of the service.

Every worker listens at the address that the settings give, together with the others: the kernel deals connections out
to them. It also listens at a port of its own, which it tells clients: the first worker at the next port, the second at
the one after that. So `--kafka HOST:9092` with two workers takes the ports 9092, 9093 and 9094. A listener that takes
no clients has no common address: brokers call each worker at its own port.
"""

import math
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import quote

from hot_tier.cluster.open import SOCKET_FILE, SOCKET_SCHEME
from hot_tier.errors import SettingsError
from tierlog.listeners import Plan, WorkerPorts, plan_listeners
from tierlog.settings import Settings
from tierlog.workers.layout import place_workers, workers_in

AUTO: Final = "auto"
MOST: Final = 1024
LAST_PORT: Final = 65535
_CGROUPS: Final = "/sys/fs/cgroup"
_VERSION_1: Final = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
_VERSION_2: Final = ("cpu.max",)


class Worker(NamedTuple):
    number: int
    settings: Settings
    home: str
    """Where the service keeps what its workers share."""
    ports: Mapping[str, WorkerPorts] = {}
    """By the names of the listeners; known once the supervisor holds them."""


def data_dirs_of(settings: Settings) -> list[str]:
    """Returns the data directories; the first is the home."""
    found = [os.path.abspath(each.strip()) for each in settings.log.data_dir.split(",") if each.strip()]
    if len(set(found)) != len(found) or not found:
        raise SettingsError(
            f"log.data_dir cannot be {settings.log.data_dir!r}",
            where="log.data_dir",
            hint="with workers it is one or several directories, each once, with commas between them",
        )
    return found


def count_workers(asked: str, cores: int, found: Iterable[int], first: int) -> int:
    """Returns how many to start. `auto` is one for each core, and never fewer than have data."""
    if asked == AUTO:
        return max([cores, *(number - first + 1 for number in found)])
    if not asked.isdecimal() or not 1 <= int(asked) <= MOST:
        raise SettingsError(
            f"cluster.workers cannot be {asked!r}",
            where="--workers, cluster.workers",
            hint=f"it is {AUTO}, or a number from 1 to {MOST}",
        )
    return int(asked)


def available_cores() -> int:
    """Returns how many cores this process may use, by its affinity and by the quota of its control groups."""
    return usable_cores(len(os.sched_getaffinity(0)), _quotas())


def usable_cores(affinity: int, quotas: Iterable[str]) -> int:
    """`quotas` are `cpu.max` of control groups: microseconds per period, or `max`. A part of a core is none."""
    cores = float(affinity)
    for quota in quotas:
        allowed, _, period = quota.partition(" ")
        if allowed.isdecimal() and period.strip().isdecimal() and int(period) > 0:
            cores = min(cores, int(allowed) / int(period))
    return max(1, math.floor(cores))


def _quotas() -> Iterator[str]:
    """Yields the quotas of this process's control groups and of all above them, of both versions of control groups."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            groups = [line.strip().split(":", 2)[1:] for line in file]
    except OSError:
        return
    for controllers, group in groups:
        if controllers and "cpu" not in controllers.split(","):
            continue
        top, files = (f"{_CGROUPS}/cpu", _VERSION_1) if controllers else (_CGROUPS, _VERSION_2)
        for above in (group, *(str(each) for each in PurePosixPath(group).parents)):
            with suppress(OSError):
                yield " ".join(Path(top + above, name).read_text().strip() for name in files)


def own_ports(plan: Plan, workers: int) -> list[int]:
    """Returns the port of each worker. 0 stays 0: the kernel chooses."""
    return [plan.port + turn if plan.port else 0 for turn in range(1, workers + 1)]


def check_ports(plans: Iterable[Plan], workers: int) -> None:
    """Raises SettingsError where two listeners would meet."""
    taken: dict[tuple[str, int], str] = {}
    for plan in plans:
        for port in (plan.port, *own_ports(plan, workers)):
            other = taken.setdefault((plan.host, port), plan.name) if port else plan.name
            if other != plan.name or port > LAST_PORT:
                why = f"{port} is none" if port > LAST_PORT else f"{other!r} needs {port} too"
                raise SettingsError(
                    f"the listener {plan.name!r} needs the ports {plan.port} to {plan.port + workers}, and {why}",
                    where=plan.where,
                    hint=f"each of {workers} workers has a port of its own: choose ports more than {workers} apart",
                )


def plan_workers(settings: Settings) -> list[Worker]:
    """Raises SettingsError if the settings or the directories do not allow it."""
    dirs = data_dirs_of(settings)
    first = settings.cluster.node_id or 1
    found = [number for data_dir in dirs for number in workers_in(data_dir)]
    count = count_workers(settings.cluster.workers, available_cores(), found, first)
    placed = place_workers(range(first, first + count), dirs)
    check_ports(plan_listeners(settings), count)
    return [
        Worker(number, _settings_of(settings, number, count, dirs[0], directory), dirs[0])
        for number, directory in placed.items()
    ]


def _settings_of(settings: Settings, number: int, count: int, home: str, directory: str) -> Settings:
    """The caches of archived records are the host's: the workers have equal shares of them."""
    cluster, store, cache = settings.cluster, settings.store, settings.cache
    metadata = cluster.metadata
    if cluster.embedded:
        metadata = SOCKET_SCHEME + os.path.join(home, SOCKET_FILE)
        store = store if store.bucket else replace(store, bucket=f"file://{quote(os.path.join(home, 'bucket'))}")
    return replace(
        settings,
        cluster=replace(cluster, node_id=number, host=cluster.host or socket.gethostname(), metadata=metadata),
        log=replace(settings.log, data_dir=directory),
        store=store,
        cache=replace(cache, memory_bytes=cache.memory_bytes // count, disk_bytes=cache.disk_bytes // count),
    )
