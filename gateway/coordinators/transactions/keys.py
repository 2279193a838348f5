"""Keys of the topic of transactions.

```
version i16 │ meaning              │ fields
0           │ a transactional id   │ transactional id string
```
"""

from typing import Final

from gateway.coordinators.offsets_topic.buffer import INT16, ValueReader, string

KEY_VERSION: Final = 0


def write_key(transactional_id: str) -> bytes:
    return INT16.pack(KEY_VERSION) + string(transactional_id)


def read_key(data: bytes) -> str | None:
    """Returns None for a kind of key that we do not know."""
    reader = ValueReader(data)
    return reader.string() if reader.int16() == KEY_VERSION else None
