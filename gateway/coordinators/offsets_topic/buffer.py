"""The primitive types of keys and values in the offsets topic: Kafka's non-flexible encodings.

```
int16 int32 int64   big-endian
string              int16 length, UTF-8 bytes; length −1 is null
bytes               int32 length, bytes
```

The bytes are not trusted: reading fails only with `CorruptLog`, and a length is checked before memory is allocated.
"""

from struct import Struct, error
from typing import Final

from hot_tier.errors import CorruptLog

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")

MAX_STRING_BYTES: Final = 0x7FFF


class ValueReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise CorruptLog("a string is not UTF-8") from None

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptLog("a string is null where null is not allowed")
        return text

    def bytes_(self) -> bytes:
        return self._take(self.int32())

    def count(self, least_bytes: int) -> int:
        """Returns the length of an array. Each of its elements takes at least `least_bytes`."""
        count = self.int32()
        if not 0 <= count * least_bytes <= len(self._data) - self._at:
            raise CorruptLog(f"an array has an impossible length: {count} elements")
        return count

    def _number(self, of: Struct) -> int:
        try:
            (value,) = of.unpack_from(self._data, self._at)
        except error:
            raise CorruptLog("the value ends too early") from None
        self._at += of.size
        return int(value)

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise CorruptLog(f"a field has an impossible length: {length} bytes")
        taken = self._data[self._at : self._at + length]
        self._at += length
        return taken


def string(text: str | None) -> bytes:
    if text is None:
        return INT16.pack(-1)
    data = text.encode()
    assert len(data) <= MAX_STRING_BYTES
    return INT16.pack(len(data)) + data


def bytes_(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data
