"""What goes wrong and when, as data made from a seed.

Each run draws from a few kinds only: a schedule of everything at once hides what needs two things of one kind in a row.
"""

import random
from dataclasses import dataclass, replace
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
    down_ms: float


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
class Swing:
    """The next replica that a reassignment removes is brought back at once, while it hears nothing from the store."""

    partition: int
    deaf_ms: float


@dataclass(frozen=True)
class CancelReassignment:
    partition: int


@dataclass(frozen=True)
class Trim:
    """Retention takes the older part of a log."""

    partition: int
    share: float


@dataclass(frozen=True)
class Ambush:
    """Waits until some broker does `event`, then strikes it there: the moments that chance alone seldom hits."""

    event: str
    strike: "type[Fault]"
    for_ms: float
    everyone: bool
    """All machines lose power with it; a cut is not to everyone but from the store alone, whose answers are lost."""


EVENTS: Final = ("acks", "proposes", "grew", "shrank", "leads", "cuts", "registers", "counts", "drops")
STRIKES: Final[tuple[type, ...]] = (Kill, PowerLoss, PowerLoss, Cut, Cut, Pause)

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
    | Swing
    | CancelReassignment
    | Trim
    | Ambush
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
    Swing,
    CancelReassignment,
    Trim,
    Ambush,
)


def plan(
    chance: random.Random, nodes: list[NodeId], partitions: int, replication_factor: int, until_ms: float
) -> list[tuple[float, Fault]]:
    kinds = [*chance.sample(KINDS, chance.randint(1, 5)), Ambush, Ambush]
    if Swing in kinds:
        kinds += [Reassign, Reassign]
    events, strikes = chance.sample(EVENTS, 2), chance.sample(STRIKES, 2)
    every_ms = chance.choice([150, 400, 1_000])
    faults: list[tuple[float, Fault]] = []
    at_ms = 600.0
    while at_ms < until_ms:
        fault = draw(chance, chance.choice(kinds), nodes, partitions, replication_factor)
        if isinstance(fault, Ambush):
            fault = replace(fault, event=chance.choice(events), strike=chance.choice(strikes))
        faults.append((at_ms, fault))
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
        return Wipe(node, short_or_long_ms)
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
    if kind is Ambush:
        return Ambush(EVENTS[0], STRIKES[0], short_or_long_ms, everyone=chance.random() < 0.5)
    if kind is Skew:
        return Skew(node, chance.choice([0.7, 0.95, 1.1, 1.5]))
    partition = chance.randrange(partitions)
    if kind is Reassign:
        return Reassign(partition, tuple(chance.sample(nodes, replication_factor)))
    if kind is Swing:
        return Swing(partition, short_or_long_ms)
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
