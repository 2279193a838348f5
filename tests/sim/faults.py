"""What goes wrong and when, as data made from a seed.

Each run draws from a few kinds only: a schedule of everything at once hides what needs two things of one kind in a row.
"""

import random
from dataclasses import dataclass
from typing import Final

from hot_tier.ids import NodeId


@dataclass(frozen=True)
class Kill:
    """The process is gone, what it wrote stays."""

    node: NodeId
    down_ms: float


@dataclass(frozen=True)
class PowerLoss:
    """The machines stop: what was not synced may be gone."""

    nodes: tuple[NodeId, ...]
    down_ms: float


@dataclass(frozen=True)
class Wipe:
    """A broker comes back with an empty disk."""

    node: NodeId


@dataclass(frozen=True)
class Stop:
    """A clean stop and a start."""

    node: NodeId
    down_ms: float


@dataclass(frozen=True)
class Pause:
    node: NodeId
    for_ms: float


@dataclass(frozen=True)
class Cut:
    """Messages from one to the other are lost; the way back may be open."""

    links: tuple[tuple[object, object], ...]
    for_ms: float


@dataclass(frozen=True)
class StoreOutage:
    for_ms: float


@dataclass(frozen=True)
class Weather:
    """Messages are lost or late, everywhere."""

    lost: float
    late: float
    for_ms: float


@dataclass(frozen=True)
class SlowDisk:
    node: NodeId
    sync_ms: float
    for_ms: float


@dataclass(frozen=True)
class Skew:
    """A clock runs fast or slow."""

    node: NodeId
    rate: float


@dataclass(frozen=True)
class Reassign:
    partition: int
    replicas: tuple[NodeId, ...]


@dataclass(frozen=True)
class CancelReassignment:
    partition: int


@dataclass(frozen=True)
class Trim:
    """Retention takes the older part of a log."""

    partition: int
    share: float


Fault = (
    Kill
    | PowerLoss
    | Wipe
    | Stop
    | Pause
    | Cut
    | StoreOutage
    | Weather
    | SlowDisk
    | Skew
    | Reassign
    | CancelReassignment
    | Trim
)

KINDS: Final[tuple[type[Fault], ...]] = (
    Kill,
    PowerLoss,
    Wipe,
    Stop,
    Pause,
    Cut,
    StoreOutage,
    Weather,
    SlowDisk,
    Skew,
    Reassign,
    CancelReassignment,
    Trim,
)


def plan(
    chance: random.Random, nodes: list[NodeId], partitions: int, replication_factor: int, until_ms: float
) -> list[tuple[float, Fault]]:
    kinds = chance.sample(KINDS, chance.randint(2, 6))
    every_ms = chance.choice([150, 400, 1_000])
    faults: list[tuple[float, Fault]] = []
    at_ms = 600.0
    while at_ms < until_ms:
        faults.append((at_ms, draw(chance, chance.choice(kinds), nodes, partitions, replication_factor)))
        at_ms += every_ms * 2 * chance.random()
    return faults


def draw(
    chance: random.Random, kind: type[Fault], nodes: list[NodeId], partitions: int, replication_factor: int
) -> Fault:
    node = chance.choice(nodes)
    short_or_long_ms = chance.choice([20, 200, 600, 2_000]) * (0.5 + chance.random())
    if kind is Kill:
        return Kill(node, short_or_long_ms)
    if kind is PowerLoss:
        several = tuple(chance.sample(nodes, chance.choice([1, 1, 2, len(nodes)])))
        return PowerLoss(several, short_or_long_ms)
    if kind is Wipe:
        return Wipe(node)
    if kind is Stop:
        return Stop(node, short_or_long_ms)
    if kind is Pause:
        return Pause(node, short_or_long_ms)
    if kind is Cut:
        return Cut(_links(chance, node, nodes), short_or_long_ms)
    if kind is StoreOutage:
        return StoreOutage(short_or_long_ms)
    if kind is Weather:
        return Weather(chance.choice([0, 0.02, 0.2]), chance.choice([0, 0.02, 0.1]), short_or_long_ms)
    if kind is SlowDisk:
        return SlowDisk(node, chance.choice([20, 100, 400]), short_or_long_ms)
    if kind is Skew:
        return Skew(node, chance.choice([0.7, 0.95, 1.1, 1.5]))
    partition = chance.randrange(partitions)
    if kind is Reassign:
        return Reassign(partition, tuple(chance.sample(nodes, replication_factor)))
    if kind is CancelReassignment:
        return CancelReassignment(partition)
    return Trim(partition, chance.random())


def _links(chance: random.Random, node: NodeId, nodes: list[NodeId]) -> tuple[tuple[object, object], ...]:
    others = [other for other in nodes if other != node]
    towards: list[object] = ["store"]
    match chance.randrange(4):
        case 0:
            towards = [chance.choice(others)]
        case 1:
            towards = [*others]
        case 2:
            towards = [*others, "store"]
    links = [(node, other) for other in towards] + [(other, node) for other in towards]
    return tuple(links if chance.random() < 0.6 else chance.sample(links, (len(links) + 1) // 2))
