"""What goes around a message: a request's header, and the frame of a response.

    request    ┌ length i32 ┬ API key i16 ┬ version i16 ┬ correlation id i32 ┬ client id ┬ tagged ┬ body …
    response   ┌ length i32 ┬ correlation id i32 ┬ tagged ┬ body …

`tagged` is there from a message's first flexible version on, except in the response to ApiVersions, whose reader
cannot know yet what we speak. The client id is a string with a 16-bit length in every version.
"""

from struct import Struct, error
from typing import Final

from gateway.kafka.errors import DecodeError
from gateway.kafka.protocol.readers import read_uvarint
from gateway.kafka.protocol.schema import Buffer

MAX_TAGGED_FIELDS: Final = 1000
"""Of a request's header. Kafka's clients send none."""
_HEADER: Final = Struct(">hhih")
_RESPONSE: Final = Struct(">ii")
_FLEXIBLE_RESPONSE: Final = Struct(">iiB")

SMALL_RESPONSE_BYTES: Final = 32 * 1024
"""Up to here one copy is cheaper than a longer list of buffers for the kernel."""


def read_header(frame: memoryview) -> tuple[int, int, int, str, int]:
    """API key, version, correlation id, client id, and where the tagged fields begin, or the body without them."""
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
    except error:
        raise DecodeError("a request shorter than its header") from None
    end = 10 + length if length > 0 else 10
    if end > len(frame):
        raise DecodeError("a client id longer than the request")
    try:
        return api_key, api_version, correlation_id, str(frame[10:end], "utf-8"), end
    except UnicodeDecodeError:
        raise DecodeError("a client id that is not UTF-8") from None


def skip_tagged(frame: memoryview, position: int) -> int:
    """Where the body begins."""
    try:
        count = frame[position]
        position += 1
        if count == 0:
            return position
        if count >= 128:
            count, position = read_uvarint(frame, position - 1)
        if count > MAX_TAGGED_FIELDS:
            raise DecodeError("a header with too many tagged fields")
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
    except IndexError:
        raise DecodeError("tagged fields of a header beyond the end of the request") from None
    if position > len(frame):
        raise DecodeError("tagged fields of a header beyond the end of the request")
    return position


def response_frame(correlation_id: int, body: list[Buffer], flexible: bool) -> list[Buffer]:
    """The buffers to send, `records` among them uncopied unless all is small. `body` begins with an empty place."""
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
