"""Keys of the topic of transactions.

```
version i16 │ meaning              │ fields
0           │ a transactional id   │ transactional id string
```
"""

from typing import Final

from gateway.coordinators.errors import InvalidTransactionalId
from gateway.coordinators.offsets_topic.buffer import INT16, ValueReader, string
from gateway.coordinators.settings import LONGEST_STRING_BYTES

KEY_VERSION: Final = 0


def write_key(transactional_id: str) -> bytes:
    return INT16.pack(KEY_VERSION) + string(transactional_id)


def read_key(data: bytes) -> str | None:
    """Returns None for a kind of key that we do not know."""
    reader = ValueReader(data)
    return reader.string() if reader.int16() == KEY_VERSION else None


def check_transactional_id(transactional_id: str) -> None:
    """Raises InvalidTransactionalId if the journal cannot hold the id."""
    try:
        length = len(transactional_id.encode())
    except UnicodeEncodeError:
        length = -1
    if not 0 < length <= LONGEST_STRING_BYTES:
        raise InvalidTransactionalId(
            "a transactional id is 1 to 32767 bytes of UTF-8", hint="set transactional.id to a name of your application"
        )
