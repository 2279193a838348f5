"""Frames between a broker and its query workers: a kind, a length, and bytes.

What the broker sends is pickled. What a worker sends is JSON, or bytes that the broker only passes on: a worker handles
what users write, and the broker must not trust it as it trusts itself.
"""

import struct
from enum import IntEnum
from typing import Final

HEADER: Final = struct.Struct(">BI")
MOST_BYTES: Final = 64 << 20
"""Of a frame that a worker sends."""
PIECE_BYTES: Final = 256 << 10


class FromBroker(IntEnum):
    START = 1
    JOB = 2
    REPLY = 3
    """To an `ASK`: its number, and the answer or an error."""
    PULL = 4
    """Send the next piece of the result."""
    CANCEL = 5


class FromWorker(IntEnum):
    ASK = 1
    PROGRESS = 2
    RESULT = 3
    """The result is there; its pieces are sent when they are pulled. An empty piece is the end."""
    PIECE = 4
    ERROR = 5
