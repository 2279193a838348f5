"""Keys of the offsets topic. The version says which kind of key it is and how it is written.

```
version i16 │ meaning       │ fields
0, 1        │ an offset     │ group string, topic string, partition i32
2           │ a group       │ group string
```

Kafka uses other versions for newer kinds of groups. They are not read here, and they are no error.
"""

from typing import Final, NamedTuple

from gateway.coordinators.offsets_topic.buffer import INT16, INT32, ValueReader, string

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group_id: str


def write_key(key: OffsetKey | GroupKey) -> bytes:
    if isinstance(key, GroupKey):
        return INT16.pack(GROUP_KEY_VERSION) + string(key.group_id)
    return INT16.pack(OFFSET_KEY_VERSION) + string(key.group_id) + string(key.topic) + INT32.pack(key.partition)


def read_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Returns None for a kind of key that we do not know."""
    reader = ValueReader(data)
    version = reader.int16()
    if version in (0, OFFSET_KEY_VERSION):
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    return None
