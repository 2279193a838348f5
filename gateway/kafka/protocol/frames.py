"""What surrounds a message: a request's header, and the frame of a response.

    request    ┌ length i32 ┬ API key i16 ┬ version i16 ┬ correlation id i32 ┬ client id ┬ tagged ┬ body …
    response   ┌ length i32 ┬ correlation id i32 ┬ tagged ┬ body …

`tagged` exists from a message's first flexible version on, except in the response to ApiVersions: its reader does not
know yet which versions we serve. The client id is a string with a 16-bit length in every version.
"""

from struct import Struct, error
from typing import Final

from gateway.kafka.errors import DecodeError
from gateway.kafka.protocol.readers import read_uvarint
from gateway.kafka.protocol.schema import Buffer

MAX_TAGGED_FIELDS: Final = 1000
"""In a request's header. Kafka's clients send none."""
_HEADER: Final = Struct(">hhih")
_RESPONSE: Final = Struct(">ii")
_FLEXIBLE_RESPONSE: Final = Struct(">iiB")

SMALL_RESPONSE_BYTES: Final = 32 * 1024
"""Up to this size one copy is cheaper than a longer list of buffers for the kernel."""


def read_header(frame: memoryview) -> tuple[int, int, int, str, int]:
    """Returns API key, version, correlation id, client id, and where the tagged fields or else the body begin."""
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
    except error:
        raise DecodeError("the request is shorter than its header") from None
    end = 10 + length if length > 0 else 10
    if end > len(frame):
        raise DecodeError("the client id is longer than the request")
    try:
        return api_key, api_version, correlation_id, str(frame[10:end], "utf-8"), end
    except UnicodeDecodeError:
        raise DecodeError("the client id is not UTF-8") from None


def skip_tagged(frame: memoryview, position: int) -> int:
    """Returns where the body begins."""
    try:
        count = frame[position]
        position += 1
        if count == 0:
            return position
        if count >= 128:
            count, position = read_uvarint(frame, position - 1)
        if count > MAX_TAGGED_FIELDS:
            raise DecodeError("the header has too many tagged fields")
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
    except IndexError:
        raise DecodeError("the tagged fields of the header go beyond the end of the request") from None
    if position > len(frame):
        raise DecodeError("the tagged fields of the header go beyond the end of the request")
    return position


def response_frame(correlation_id: int, body: list[Buffer], flexible: bool) -> list[Buffer]:
    """Returns the buffers to send. Large `records` are not copied. `body` must begin with an empty placeholder."""
    size = sum(map(len, body))
    if flexible:
        body[0] = _FLEXIBLE_RESPONSE.pack(size + 5, correlation_id, 0)
    else:
        body[0] = _RESPONSE.pack(size + 4, correlation_id)
    if size <= SMALL_RESPONSE_BYTES:
        return [b"".join(body)]
    merged: list[Buffer] = []
    small: list[Buffer] = []
    for part in body:
        if len(part) < SMALL_RESPONSE_BYTES:
            small.append(part)
            continue
        if small:
            merged.append(b"".join(small))
            small = []
        merged.append(part)
    if small:
        merged.append(b"".join(small))
    return merged
