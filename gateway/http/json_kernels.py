"""A compiled function that walks over a long JSON array. It releases the GIL, allocates nothing and never raises.

It has one signature and is compiled, or loaded from numba's cache, when this module is imported.
"""

from typing import Final

from numba import types

from hot_tier.record.compiled import kernel

UNCLOSED: Final = -1
TOO_MANY_ELEMENTS: Final = -2
TOO_MANY_VALUES: Final = -3

_BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
_INT: Final = types.int64
_TWO: Final = types.UniTuple(_INT, 2)  # type: ignore[no-untyped-call]


@kernel(_TWO(_BYTES, _INT, _INT, _INT, _INT, _INT, types.int64[:, ::1]))
def cut_array(data, start, most_elements, most_values, piece_bytes, piece_values, pieces):  # type: ignore[no-untyped-def]
    """Cuts the array that begins before `start` between its elements, into pieces of about `piece_bytes`.

    A piece also ends after about `piece_values` values. Returns (number of pieces, position of the array's closing
    bracket). If the first number is negative, it is the error, and the second is the element where it is. A row of
    `pieces` is (start, end, elements, values). This does not check that the text is JSON; the parser of the pieces
    does. The whole is an array if and only if each piece in brackets is one.
    """
    count = elements = values = 0
    piece_start, piece_first, values_before = start, 0, 0
    depth = 0
    in_string = False
    at = start
    while at < len(data):
        byte = data[at]
        if in_string:
            if byte == 0x5C:  # a backslash: the next byte is part of the string
                at += 1
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte == 0x5B or byte == 0x7B:
            depth += 1
            values += 1
        elif byte == 0x5D or byte == 0x7D:
            if depth == 0:
                pieces[count, 0], pieces[count, 1] = piece_start, at
                pieces[count, 2], pieces[count, 3] = elements + 1 - piece_first, values
                return count + 1, at
            depth -= 1
        elif byte == 0x2C:
            values += 1
            if depth == 0:
                elements += 1
                if elements >= most_elements:
                    return TOO_MANY_ELEMENTS, elements
                values_before = values
                if at - piece_start >= piece_bytes or values >= piece_values:
                    pieces[count, 0], pieces[count, 1] = piece_start, at
                    pieces[count, 2], pieces[count, 3] = elements - piece_first, values
                    count += 1
                    piece_start, piece_first, values, values_before = at + 1, elements, 0, 0
        if values - values_before > most_values:
            return TOO_MANY_VALUES, elements
        at += 1
    return UNCLOSED, elements
