"""The topics that a consumer's join metadata names.

Group metadata is opaque, with one exception that Kafka makes as well: whether a group of protocol type `consumer`
still reads a topic decides if that topic's offsets may expire or be deleted. All versions of the consumer protocol
start alike:

```
version i16 │ topic count i32 │ (length i16, UTF-8 bytes) × count │ … later fields, not read
```
"""

import struct

_START = struct.Struct(">hi")  # version, topic count
_LENGTH = struct.Struct(">h")

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None when the bytes are not a consumer subscription: then nothing may be concluded from them."""
    try:
        _, count = _START.unpack_from(metadata)
        position = _START.size
        if count < 0 or count * _LENGTH.size > len(metadata) - position:
            return None
        topics = set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) != length:
                return None
            topics.add(name.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
