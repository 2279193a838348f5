"""Random instances of any message, filled in as a given version carries it."""

import random
from dataclasses import fields
from typing import Any
from uuid import UUID

from gateway.kafka.protocol.schema import Wire

INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


WORDS = ("",)


def sample(cls: type[Any], version: int, rng: random.Random, longest: int = 3, words: tuple[str, ...] = WORDS) -> Any:
    """An instance whose fields outside `version` are defaults, so that a round trip gives an equal one.

    Half of its strings are `words`, the rest is anything.
    """
    values = {}
    for f in fields(cls):
        place: Wire = f.metadata["wire"]
        if not place.carried_in(version):
            continue
        if place.tag is not None and rng.random() < 0.5:
            continue
        # A tagged struct is None when absent but cannot be null on the wire.
        if place.nullable_in(version) and isinstance(place.kind, str) and rng.random() < 0.2:
            values[f.name] = None
        elif place.array:
            values[f.name] = [_one(place.kind, version, rng, longest, words) for _ in range(rng.randint(0, longest))]
        else:
            value = _one(place.kind, version, rng, longest, words)
            # A tagged struct that equals its default need not be sent; codecs differ in whether they do.
            if place.tag is None or isinstance(place.kind, str) or value != place.kind():
                values[f.name] = value
    return cls(**values)


def _one(kind: Any, version: int, rng: random.Random, longest: int, words: tuple[str, ...]) -> Any:
    if not isinstance(kind, str):
        return sample(kind, version, rng, longest, words)
    if kind in INTEGERS:
        top = 1 << INTEGERS[kind]
        return rng.choice([0, 1, -1, top - 1, -top, rng.randrange(-top, top)])
    if kind in UNSIGNED:
        return rng.randrange(1 << UNSIGNED[kind])
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.uniform(-1e12, 1e12)
        case "uuid":
            return UUID(int=rng.choice([0, rng.getrandbits(128)]))
        case "string" if rng.random() < 0.5:
            return rng.choice(words)
        case "string":
            return "".join(rng.choices("abzé中😀-._", k=rng.choice([0, 1, 5, 130])))
        case _:
            return rng.randbytes(rng.choice([0, 1, 130, 20_000]))
