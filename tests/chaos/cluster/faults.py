"""What goes wrong, when and for how long: values, made from a seed. Carrying it out is left to `inject.py`.

A schedule is a list of rounds. In a round faults may overlap; after it everything is healed and the service has to
come back before the next one begins. Who is hit is said by role, and found out when it happens: the leader of
partition 0 is a better target than node 2.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    KILL = "kill -9, then start"
    STOP = "SIGTERM, then start"
    PAUSE = "SIGSTOP, then SIGCONT"
    CUT_PEERS = "no packet between it and the other brokers"
    CUT_KEEPER = "no packet between it and etcd"
    ISOLATE = "no packet between it and anybody"
    DEAF = "it sends, and hears no other broker and not etcd"
    KEEPER_DOWN = "etcd killed, then started"
    KEEPER_PAUSE = "etcd stands still"
    DISK_FULL = "not a byte free"
    POWER = "power lost: what was not synced is gone"


class Who(Enum):
    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    PAIR = "leader and follower"
    ALL = "all"
    COORDINATOR = "coordinator of transactions"


PROCESSES = (Kind.KILL, Kind.STOP, Kind.PAUSE)
CUTS = (Kind.CUT_PEERS, Kind.CUT_KEEPER, Kind.ISOLATE, Kind.DEAF)
KEEPER = (Kind.KEEPER_DOWN, Kind.KEEPER_PAUSE)
ANYBODY = {Who.LEADER: 6, Who.FOLLOWER: 3, Who.CONTROLLER: 2, Who.PAIR: 2, Who.ALL: 1}
"""How often each is hit."""
WITH_COORDINATOR = ANYBODY | {Who.COORDINATOR: 5}
LONGEST_S = {
    Kind.KILL: 2.0,
    Kind.STOP: 1.0,
    Kind.PAUSE: 7.0,
    Kind.CUT_PEERS: 8.0,
    Kind.CUT_KEEPER: 8.0,
    Kind.ISOLATE: 8.0,
    Kind.DEAF: 8.0,
    Kind.KEEPER_DOWN: 5.0,
    Kind.KEEPER_PAUSE: 5.0,
    Kind.DISK_FULL: 4.0,
    Kind.POWER: 0.5,
}


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    who: Who
    after_s: float  # since the beginning of the round
    seconds: float

    def __str__(self) -> str:
        return f"{self.after_s:.2f} s: {self.kind.name} {self.who.value} for {self.seconds:.2f} s"


Round = tuple[Fault, ...]
Schedule = tuple[Round, ...]


def schedule(seed: int, kinds: Sequence[Kind], rounds: int, whom: Mapping[Who, int] = ANYBODY) -> Schedule:
    source = random.Random(seed)
    return tuple(_round(source, kinds, whom) for _ in range(rounds))


def _round(source: random.Random, kinds: Sequence[Kind], whom: Mapping[Who, int]) -> Round:
    count = source.choices((1, 2, 3), (6, 3, 1))[0]
    return tuple(_fault(source, source.choice(kinds), whom) for _ in range(count))


def _fault(source: random.Random, kind: Kind, whom: Mapping[Who, int]) -> Fault:
    everybody = kind in KEEPER or kind is Kind.POWER
    who = Who.ALL if everybody else source.choices(tuple(whom), tuple(whom.values()))[0]
    # Short faults, which end amid their consequences, find as much as long ones.
    seconds = source.uniform(0.05, 1.0) if source.random() < 0.4 else source.uniform(0.5, LONGEST_S[kind])
    return Fault(kind, who, round(source.uniform(0.0, 1.5), 3), round(min(seconds, LONGEST_S[kind]), 3))


def shown(plan: Schedule) -> str:
    return "\n".join(f"  round {number}: {'; '.join(map(str, round_))}" for number, round_ in enumerate(plan))
