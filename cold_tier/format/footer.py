"""Looks into a Parquet footer before Arrow does: which columns does it say are encrypted?

Arrow ends the process if it is asked for the metadata of an encrypted column without the key. A footer comes from the
bucket and may say anything. This walks over the Thrift structure (compact protocol) and reads nothing else of it.
"""

from collections.abc import Iterator
from typing import Final

from cold_tier.errors import CorruptObject

_ROW_GROUPS: Final = 4
_COLUMNS: Final = 1
_CRYPTO_METADATA: Final = 8

_BYTE: Final = 3
_NUMBERS: Final = (4, 5, 6)
_DOUBLE: Final = 7
_BINARY: Final = 8
_LISTS: Final = (9, 10)
_STRUCT: Final = 12
_DEEPEST: Final = 16
_TAIL_BYTES: Final = 8


def encrypted_columns(footer: bytes, where: str) -> set[int]:
    """Returns the positions of the columns that are encrypted in any row group. `footer` has its length and magic."""
    walk = _Walk(footer[:-_TAIL_BYTES])
    found: set[int] = set()
    try:
        for _ in walk.structs(_ROW_GROUPS):
            for column in walk.structs(_COLUMNS):
                for number, kind in walk.fields():
                    if number == _CRYPTO_METADATA:
                        found.add(column)
                    walk.skip(kind)
    except (IndexError, ValueError) as error:
        raise CorruptObject("the Parquet footer in the index cannot be read", where=where) from error
    return found


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def structs(self, wanted: int) -> Iterator[int]:
        """Goes over the struct that begins here, and stops at each struct in its list `wanted`, which the caller walks
        over."""
        for number, kind in self.fields():
            if number == wanted and kind == _LISTS[0]:
                count, element = self._items()
                if element != _STRUCT:
                    raise ValueError("not a list of structs")
                yield from range(count)
            else:
                self.skip(kind)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yields number and kind of each field of the struct that begins here. The caller walks over each value."""
        number = 0
        while head := self._next():
            step = head >> 4
            number = number + step if step else self._varint() >> 1
            yield number, head & 15

    def skip(self, kind: int, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise ValueError("too deep")
        if kind == _BYTE:
            self._at += 1
        elif kind in _NUMBERS:
            self._varint()
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        elif kind in _LISTS:
            count, element = self._items()
            for _ in range(count):
                # In a list a truth value takes a byte; in a struct it is in the head.
                self.skip(element if element > 2 else _BYTE, depth + 1)
                if self._at > len(self._data):
                    raise IndexError
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind > 2:
            raise ValueError("a kind that no footer has")

    def _items(self) -> tuple[int, int]:
        head = self._next()
        return (self._varint() if head >> 4 == 15 else head >> 4), head & 15

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._next()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("too long a number")

    def _next(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte
