"""A record's value says which send it came from, and proves that it is whole.

producer|sequence|nonce|crc32 of everything else|padding
"""

import random
import zlib
from typing import NamedTuple


class Identity(NamedTuple):
    """One send. The nonce tells apart two sends that claim the same producer and sequence."""

    producer: str
    sequence: int
    nonce: str


class Damaged(Exception):
    """A value that no producer of this run has sent."""


def make_value(identity: Identity, source: random.Random, max_padding: int = 1200) -> bytes:
    padding = b"." * source.randrange(max_padding)
    head = f"{identity.producer}|{identity.sequence}|{identity.nonce}".encode()
    return b"|".join((head, b"%08x" % zlib.crc32(head + padding), padding))


def read_value(value: bytes | None) -> Identity:
    try:
        assert value is not None
        producer, sequence, nonce, crc, padding = value.split(b"|")
        head = b"|".join((producer, sequence, nonce))
        assert int(crc, 16) == zlib.crc32(head + padding)
        return Identity(producer.decode(), int(sequence), nonce.decode())
    except (AssertionError, ValueError) as error:
        raise Damaged(f"{value[:80] if value else value!r}") from error
