"""The compiled loops over records: the walk for validation, columns out of records, records out of columns.

Every kernel has exactly one signature, compiled (or loaded from numba's cache) when this module is imported;
so import it where it is needed. They release the GIL, allocate nothing and never raise: foreign bytes give a status
below zero, which `validate` and `columns` turn into our errors.

All of them stay in this one file, because numba's cache notices a change only in the file of the kernel
itself, not in a file it imports from.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hot_tier.record.compiled import inlined, kernel

MIN_RECORD_BYTES: Final = 7  # one byte each: length, attributes, two deltas, key, value, header count
MOST_RECORD_OVERHEAD: Final = 36  # varints: length 5, timestamp 10, offset, key, value, headers 5 each; attributes
MOST_HEADER_OVERHEAD: Final = 10

# What is wrong with a record.
OK: Final = 0
VARINT: Final = -1
RECORD_LENGTH: Final = -2
FIELD_LENGTH: Final = -3
HEADER_COUNT: Final = -4
TRAILING_BYTES: Final = -5
OFFSET_DELTA: Final = -6
NULL_KEY: Final = -7
TIMESTAMP: Final = -8
HEADER_KEY: Final = -9
REFUSED: Final = -10
OF_ONE_RECORD: Final = (NULL_KEY, TIMESTAMP, HEADER_KEY)
"""The batch can be read; a record in it is not to be taken."""

FAULTS: Final = {
    VARINT: "a varint is longer than its type or its record",
    RECORD_LENGTH: "the record's length is not that of its fields, or runs past the batch",
    FIELD_LENGTH: "a key, value or header runs past its record",
    HEADER_COUNT: "more headers than its bytes can hold",
    TRAILING_BYTES: "bytes follow the last record",
    OFFSET_DELTA: "an offset delta is out of order or beyond the batch's last",
    NULL_KEY: "no key, on a topic that is compacted by key",
    TIMESTAMP: "a timestamp is out of bounds",
    HEADER_KEY: "a header key is null or not UTF-8",
}

# Columns of the table of sections that `decode_records` takes, one row for each batch.
SECTION_COLUMNS: Final = 8
(
    SECTION_START,
    SECTION_END,
    SECTION_COUNT,
    SECTION_BASE_OFFSET,
    SECTION_LAST_DELTA,
    SECTION_TIMESTAMP_TYPE,
    SECTION_TIMESTAMP,  # type 0: the base of the records' own; type 1: that of all records
    SECTION_LEADER_EPOCH,
) = range(SECTION_COLUMNS)

# What `decode_records` and `decode_headers` count as they go, over as many calls as there are buffers.
TOTALS: Final = 12
(
    ROWS,
    KEY_BYTES,
    VALUE_BYTES,
    NULL_KEYS,
    NULL_VALUES,
    HEADERS,
    ROWS_WITHOUT_HEADERS,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    NULL_HEADER_KEYS,
    NULL_HEADER_VALUES,
    HEADER_KEYS_NOT_UTF8,
) = range(TOTALS)

_BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
_OUT_BYTES: Final = types.Array(types.uint8, 1, "C")
_OUT_INT32: Final = types.Array(types.int32, 1, "C")
_OUT_INT64: Final = types.Array(types.int64, 1, "C")
_INT32: Final = types.Array(types.int32, 1, "C", readonly=True)
_INT64: Final = types.Array(types.int64, 1, "C", readonly=True)
_TABLE: Final = types.Array(types.int64, 2, "C", readonly=True)
_THREE: Final = types.Tuple([types.int64] * 3)  # type: ignore[no-untyped-call]
_INT: Final = types.int64


def _intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


@_intrinsic
def _pointer(typing_context, array):  # type: ignore[no-untyped-def]
    """Returns a pointer to the array's items. Kernels use pointers because indexing an array checks for negative
    indexes, and passing an array to an inlined part counts references atomically. Both cost more than the work
    itself."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), codegen  # type: ignore[no-untyped-call]


@_intrinsic
def _copy(typing_context, target, target_at, source, source_at, length):  # type: ignore[no-untyped-def]
    """Copies bytes with memcpy. A loop is slower, because the compiler does not know that the two do not overlap."""

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        target, target_at, source, source_at, length = arguments
        to, of = builder.gep(target, [target_at]), builder.gep(source, [source_at])
        cgutils.raw_memcpy(builder, to, of, length, length.type(1))  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), codegen


@inlined
def _read_varint(data, position, end):  # type: ignore[no-untyped-def]
    """Returns a zigzag varint of up to 32 bits and its end. The end is -1 if the varint does not end."""
    shift = np.uint64(0)
    value = np.uint64(0)
    while position < end and shift < np.uint64(35):
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if value > np.uint64(0xFFFF_FFFF):
                return np.int64(0), np.int64(-1)
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@inlined
def _read_varlong(data, position, end):  # type: ignore[no-untyped-def]
    """Returns a zigzag varint of up to 64 bits and its end. The end is -1 if the varint does not end."""
    shift = np.uint64(0)
    value = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(data[position])
        position += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return np.int64(0), np.int64(-1)
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@inlined
def _read_field(data, position, end):  # type: ignore[no-untyped-def]
    """Reads a length and that many bytes. Returns the length (-1: null) and the start of the bytes (below 0: a
    fault)."""
    length, position = _read_varint(data, position, end)
    if position < 0:
        return np.int64(0), np.int64(VARINT)
    if length < -1 or length > end - position:
        return np.int64(0), np.int64(FIELD_LENGTH)
    return length, position


@inlined
def _read_record(data, position, size):  # type: ignore[no-untyped-def]
    """Returns the fields of one record up to its headers.

    (status, end of the record, timestamp delta, offset delta, key length, key at, value length, value at,
    header count, headers at)
    """
    no = np.int64(0)
    length, position = _read_varint(data, position, size)
    if position < 0:
        return np.int64(VARINT), no, no, no, no, no, no, no, no, no
    if length < MIN_RECORD_BYTES - 1 or length > size - position:
        return np.int64(RECORD_LENGTH), no, no, no, no, no, no, no, no, no
    end = position + length
    timestamp_delta, position = _read_varlong(data, position + 1, end)
    if position < 0:
        return np.int64(VARINT), no, no, no, no, no, no, no, no, no
    offset_delta, position = _read_varint(data, position, end)
    if position < 0:
        return np.int64(VARINT), no, no, no, no, no, no, no, no, no
    key_length, key_at = _read_field(data, position, end)
    if key_at < 0:
        return key_at, no, no, no, no, no, no, no, no, no
    value_length, value_at = _read_field(data, key_at + max(key_length, no), end)
    if value_at < 0:
        return value_at, no, no, no, no, no, no, no, no, no
    headers, position = _read_varint(data, value_at + max(value_length, no), end)
    if position < 0:
        return np.int64(VARINT), no, no, no, no, no, no, no, no, no
    if headers < 0 or headers > (end - position) // 2:
        return np.int64(HEADER_COUNT), no, no, no, no, no, no, no, no, no
    if headers == 0 and position != end:
        return np.int64(RECORD_LENGTH), no, no, no, no, no, no, no, no, no
    return (
        np.int64(OK),
        end,
        timestamp_delta,
        offset_delta,
        key_length,
        key_at,
        value_length,
        value_at,
        headers,
        position,
    )


@inlined
def _is_utf8(data, position, end):  # type: ignore[no-untyped-def]
    while position < end:
        byte = data[position]
        if byte < 0x80:
            position += 1
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        else:
            return False
        if position + more >= end or not low <= data[position + 1] <= high:
            return False
        for i in range(position + 2, position + more + 1):
            if not 0x80 <= data[i] <= 0xBF:
                return False
        position += more + 1
    return True


@kernel(_THREE(_BYTES, _INT, _INT, _INT, _INT, _INT, types.boolean, _OUT_INT64))
def walk_records(data, start, count, base_timestamp, least_timestamp, greatest_timestamp, compacted, refused):  # type: ignore[no-untyped-def]
    """Checks the `count` records of a produced batch, which fill `data` from `start` on.

    Offset deltas must be 0, 1, 2 …, timestamps -1 or within the bounds, header keys UTF-8. Returns the status,
    the index of the record it is about, and the greatest timestamp (that of the record at fault for TIMESTAMP).

    Where `refused` has room, the walk goes on behind a record whose content alone is wrong (`OF_ONE_RECORD`). The index
    and the status of such a record are put into `refused`; the walk then returns REFUSED and their number.
    """
    position = start
    size = np.int64(data.shape[0])
    data = _pointer(data)
    room = np.int64(refused.shape[0]) // 2
    refused = _pointer(refused)
    named = np.int64(0)
    max_timestamp = np.int64(-1)
    for index in range(count):
        status, end, timestamp_delta, offset_delta, key_length, _, _, _, headers, position = _read_record(
            data, position, size
        )
        if status < 0:
            return status, index, max_timestamp
        timestamp = base_timestamp + timestamp_delta
        fault = OK
        if timestamp != -1 and (timestamp < least_timestamp or timestamp > greatest_timestamp):
            if room == 0:
                return TIMESTAMP, index, timestamp
            fault = TIMESTAMP
        max_timestamp = max(max_timestamp, timestamp)
        if offset_delta != index:
            return OFFSET_DELTA, index, max_timestamp
        if compacted and key_length < 0:
            fault = NULL_KEY
        for _ in range(headers):
            length, position = _read_field(data, position, end)
            if position < 0:
                return position, index, max_timestamp
            if length < 0 or not _is_utf8(data, position, position + length):
                fault = HEADER_KEY
                length = max(length, 0)
            length, position = _read_field(data, position + length, end)
            if position < 0:
                return position, index, max_timestamp
            position += max(length, 0)
        if position != end:
            return RECORD_LENGTH, index, max_timestamp
        if fault != OK:
            if room == 0:
                return fault, index, max_timestamp
            if named < room:
                refused[2 * named] = index
                refused[2 * named + 1] = fault
                named += 1
    if position != size:
        return TRAILING_BYTES, count, max_timestamp
    if named:
        return REFUSED, named, max_timestamp
    return OK, count, max_timestamp


@kernel(
    _THREE(
        *(_BYTES, _TABLE, _INT, _INT),
        *(_OUT_INT64, _OUT_INT64, _OUT_INT32, _OUT_INT32),
        *(_OUT_INT32, _OUT_BYTES, _OUT_BYTES),
        *(_OUT_INT32, _OUT_BYTES, _OUT_BYTES),
        *(_OUT_INT32, _OUT_BYTES, _OUT_INT64, _OUT_INT64),
    )
)
def decode_records(  # type: ignore[no-untyped-def]
    data,
    sections,
    from_offset,
    end_offset,
    offsets,
    timestamps,
    timestamp_types,
    leader_epochs,
    key_ends,
    keys,
    key_bits,
    value_ends,
    values,
    value_bits,
    header_ends,
    header_bits,
    headers_at,
    totals,
):
    """Appends the records of each section of `data` whose offset is in the range to the columns.

    Arrow's layout: `…_ends` are offsets with a 0 in front, `…_bits` validity bitmaps that come in as all ones.
    Headers are only checked and counted here; `headers_at` says for `decode_headers` where each row's begin.
    Returns the status, and the section and the record it is about.
    """
    data = _pointer(data)
    offsets, timestamps = _pointer(offsets), _pointer(timestamps)
    timestamp_types, leader_epochs = _pointer(timestamp_types), _pointer(leader_epochs)
    key_ends, keys, key_bits = _pointer(key_ends), _pointer(keys), _pointer(key_bits)
    value_ends, values, value_bits = _pointer(value_ends), _pointer(values), _pointer(value_bits)
    header_ends, header_bits, headers_at = _pointer(header_ends), _pointer(header_bits), _pointer(headers_at)
    row = totals[ROWS]
    key_end = totals[KEY_BYTES]
    value_end = totals[VALUE_BYTES]
    for section in range(sections.shape[0]):
        position = sections[section, SECTION_START]
        size = sections[section, SECTION_END]
        base_offset = sections[section, SECTION_BASE_OFFSET]
        last_delta = sections[section, SECTION_LAST_DELTA]
        timestamp_type = sections[section, SECTION_TIMESTAMP_TYPE]
        timestamp = sections[section, SECTION_TIMESTAMP]
        leader_epoch = sections[section, SECTION_LEADER_EPOCH]
        previous_delta = np.int64(-1)
        for index in range(sections[section, SECTION_COUNT]):
            (
                status,
                end,
                timestamp_delta,
                offset_delta,
                key_length,
                key_at,
                value_length,
                value_at,
                headers,
                position,
            ) = _read_record(data, position, size)
            if status < 0:
                return status, section, index
            if offset_delta <= previous_delta or offset_delta > last_delta:
                return OFFSET_DELTA, section, index
            previous_delta = offset_delta
            first_header_at = position
            name_bytes = np.int64(0)
            content_bytes = np.int64(0)
            for _ in range(headers):
                length, position = _read_field(data, position, end)
                if position < 0:
                    return position, section, index
                if length > 0:
                    if not _is_utf8(data, position, position + length):
                        totals[HEADER_KEYS_NOT_UTF8] += 1
                    position += length
                    name_bytes += length
                length, position = _read_field(data, position, end)
                if position < 0:
                    return position, section, index
                if length > 0:
                    position += length
                    content_bytes += length
            if position != end:
                return RECORD_LENGTH, section, index
            offset = base_offset + offset_delta
            if offset < from_offset or offset >= end_offset:
                continue
            offsets[row] = offset
            leader_epochs[row] = leader_epoch
            timestamp_types[row] = timestamp_type
            timestamps[row] = timestamp if timestamp_type == 1 else timestamp + timestamp_delta
            if key_length > 0:
                _copy(keys, key_end, data, key_at, key_length)
                key_end += key_length
            elif key_length < 0:
                key_bits[row >> 3] &= ~np.uint8(1 << (row & 7))
                totals[NULL_KEYS] += 1
            key_ends[row + 1] = key_end
            if value_length > 0:
                _copy(values, value_end, data, value_at, value_length)
                value_end += value_length
            elif value_length < 0:
                value_bits[row >> 3] &= ~np.uint8(1 << (row & 7))
                totals[NULL_VALUES] += 1
            value_ends[row + 1] = value_end
            if headers == 0:
                header_bits[row >> 3] &= ~np.uint8(1 << (row & 7))
                totals[ROWS_WITHOUT_HEADERS] += 1
            else:
                headers_at[row] = first_header_at
                totals[HEADERS] += headers
                totals[HEADER_KEY_BYTES] += name_bytes
                totals[HEADER_VALUE_BYTES] += content_bytes
            header_ends[row + 1] = totals[HEADERS]
            row += 1
        if position != size:
            return TRAILING_BYTES, section, sections[section, SECTION_COUNT]
    totals[ROWS] = row
    totals[KEY_BYTES] = key_end
    totals[VALUE_BYTES] = value_end
    return OK, 0, 0


@kernel(
    types.void(
        *(_BYTES, _INT, _INT, _INT32, _INT64),
        *(_OUT_INT32, _OUT_BYTES, _OUT_BYTES),
        *(_OUT_INT32, _OUT_BYTES, _OUT_BYTES),
        _OUT_INT64,
    )
)
def decode_headers(  # type: ignore[no-untyped-def]
    data,
    first_row,
    end_row,
    header_ends,
    headers_at,
    key_ends,
    keys,
    key_bits,
    value_ends,
    values,
    value_bits,
    totals,
):
    """Appends the headers of rows in `data`. `decode_records` has already found and checked them."""
    size = np.int64(data.shape[0])
    data = _pointer(data)
    key_ends, keys, key_bits = _pointer(key_ends), _pointer(keys), _pointer(key_bits)
    value_ends, values, value_bits = _pointer(value_ends), _pointer(values), _pointer(value_bits)
    for row in range(first_row, end_row):
        position = headers_at[row]
        for header in range(header_ends[row], header_ends[row + 1]):
            key_end = np.int64(key_ends[header])
            length, position = _read_field(data, position, size)
            if length > 0:
                _copy(keys, key_end, data, position, length)
                position += length
                key_end += length
            elif length < 0:
                key_bits[header >> 3] &= ~np.uint8(1 << (header & 7))
                totals[NULL_HEADER_KEYS] += 1
            key_ends[header + 1] = key_end
            value_end = np.int64(value_ends[header])
            length, position = _read_field(data, position, size)
            if length > 0:
                _copy(values, value_end, data, position, length)
                position += length
                value_end += length
            elif length < 0:
                value_bits[header >> 3] &= ~np.uint8(1 << (header & 7))
                totals[NULL_HEADER_VALUES] += 1
            value_ends[header + 1] = value_end


@inlined
def _varint_bytes(value):  # type: ignore[no-untyped-def]
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    size = np.int64(1)
    while zigzag >= np.uint64(0x80):
        zigzag >>= np.uint64(7)
        size += 1
    return size


@inlined
def _write_varint(out, position, value):  # type: ignore[no-untyped-def]
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    while zigzag >= np.uint64(0x80):
        out[position] = np.uint8(zigzag & np.uint64(0x7F)) | np.uint8(0x80)
        zigzag >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(zigzag)
    return position + 1


@inlined
def _is_null(bits, bit, index):  # type: ignore[no-untyped-def]
    """Returns whether the row is null. `bit` is the first row's bit in the bitmap; it is -1 for a column without
    nulls."""
    return bit >= 0 and not bits[(bit + index) >> 3] >> ((bit + index) & 7) & 1


@inlined
def _field_length(ends, bits, bit, index):  # type: ignore[no-untyped-def]
    if _is_null(bits, bit, index):
        return np.int64(-1)
    return np.int64(ends[index + 1]) - np.int64(ends[index])


@inlined
def _field_bytes(length):  # type: ignore[no-untyped-def]
    return _varint_bytes(length) + max(length, np.int64(0))


@inlined
def _write_field(out, position, ends, data, index, length):  # type: ignore[no-untyped-def]
    position = _write_varint(out, position, length)
    if length > 0:
        _copy(out, position, data, np.int64(ends[index]), length)
        position += length
    return position


@kernel(
    _INT(
        *(_OUT_BYTES, _INT, _INT, _INT64, _INT64),
        *(_INT32, _BYTES, _BYTES, _INT),
        *(_INT32, _BYTES, _BYTES, _INT),
        *(_INT32, _BYTES, _INT),
        *(_INT32, _BYTES, _BYTES, _INT),
        *(_INT32, _BYTES, _BYTES, _INT),
    )
)
def encode_records(  # type: ignore[no-untyped-def]
    out,
    first_row,
    end_row,
    offsets,
    timestamps,
    key_ends,
    keys,
    key_bits,
    key_bit,
    value_ends,
    values,
    value_bits,
    value_bit,
    header_ends,
    header_bits,
    header_bit,
    name_ends,
    names,
    name_bits,
    name_bit,
    content_ends,
    contents,
    content_bits,
    content_bit,
):
    """Writes the rows as records of one batch that starts with `first_row`; returns the bytes written.

    `out` must have room for `MOST_RECORD_OVERHEAD` a row and `MOST_HEADER_OVERHEAD` a header beside the data.
    `…_bit` is where in its bitmap the first row's bit stands; -1 for a column without nulls.
    """
    out, offsets, timestamps = _pointer(out), _pointer(offsets), _pointer(timestamps)
    key_ends, keys, key_bits = _pointer(key_ends), _pointer(keys), _pointer(key_bits)
    value_ends, values, value_bits = _pointer(value_ends), _pointer(values), _pointer(value_bits)
    header_ends, header_bits = _pointer(header_ends), _pointer(header_bits)
    name_ends, names, name_bits = _pointer(name_ends), _pointer(names), _pointer(name_bits)
    content_ends, contents, content_bits = _pointer(content_ends), _pointer(contents), _pointer(content_bits)
    position = np.int64(0)
    for row in range(first_row, end_row):
        timestamp_delta = timestamps[row] - timestamps[first_row]
        offset_delta = offsets[row] - offsets[first_row]
        key_length = _field_length(key_ends, key_bits, key_bit, row)
        value_length = _field_length(value_ends, value_bits, value_bit, row)
        length = (
            1
            + _varint_bytes(timestamp_delta)
            + _varint_bytes(offset_delta)
            + _field_bytes(key_length)
            + _field_bytes(value_length)
        )
        first_header = np.int64(header_ends[row])
        end_header = np.int64(header_ends[row + 1])
        if _is_null(header_bits, header_bit, row):
            end_header = first_header
        for header in range(first_header, end_header):
            length += _field_bytes(_field_length(name_ends, name_bits, name_bit, header))
            length += _field_bytes(_field_length(content_ends, content_bits, content_bit, header))
        length += _varint_bytes(end_header - first_header)

        position = _write_varint(out, position, length)
        out[position] = 0
        position = _write_varint(out, position + 1, timestamp_delta)
        position = _write_varint(out, position, offset_delta)
        position = _write_field(out, position, key_ends, keys, row, key_length)
        position = _write_field(out, position, value_ends, values, row, value_length)
        position = _write_varint(out, position, end_header - first_header)
        for header in range(first_header, end_header):
            length = _field_length(name_ends, name_bits, name_bit, header)
            position = _write_field(out, position, name_ends, names, header, length)
            length = _field_length(content_ends, content_bits, content_bit, header)
            position = _write_field(out, position, content_ends, contents, header, length)
    return position
