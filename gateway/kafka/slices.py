"""Reads requests and writes answers that are too long for one step of the loop, in slices (`gateway.lane`)."""

from typing import Any, Final

from gateway.kafka.apis import Route
from gateway.kafka.errors import AnswerTooLarge
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.schema import Buffer
from gateway.lane import Turn

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Limit for all answers except those to a fetch, which has limits of its own."""


async def read_request(route: Route, body: memoryview, turn: Turn) -> Any:
    return await turn.run(route.read_in_slices(body))


async def write_response(route: Route, response: Any, turn: Turn) -> list[Buffer]:
    """Returns the body after a placeholder for its header. Raises AnswerTooLarge if it has too many bytes."""
    body: list[Buffer] = [b""]
    parts: list[Buffer] = []
    total = 0
    steps = route.write_in_slices(response, parts.append)
    async for _ in turn.through(steps):
        total += _move(parts, body)
        if total > MAX_ANSWER_BYTES and route.api_key is not ApiKey.FETCH:
            raise AnswerTooLarge(
                f"the answer has more than {MAX_ANSWER_BYTES} bytes", hint="ask for fewer topics, groups or partitions"
            )
    _move(parts, body)
    return body


def _move(parts: list[Buffer], body: list[Buffer]) -> int:
    """Joins many small buffers into one. Records are not copied."""
    if all(type(part) is bytes for part in parts):
        body.append(b"".join(parts))
        size = len(body[-1])
    else:
        body.extend(parts)
        size = sum(map(len, parts))
    parts.clear()
    return size
