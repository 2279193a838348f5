"""The part of a batch of messages that another broker leads: sent there as a batch of its own.

Order holds per partition: what does not fit into one request follows when the one before is stored, and what follows a
request that failed is not sent.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.http.operation import Call
from gateway.http.problems import Problem, from_document
from gateway.http.producer import Stored
from gateway.http.schemas import NewMessages
from gateway.off_loop import off_loop
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import TierlogError

_OPENING, _CLOSING = b'{"messages":[', b"]}"


async def forward_batch(call: Call, leader: BrokerInfo, chosen: Sequence[tuple[int, int]], outcomes: list[Any]) -> None:
    """Send the messages at these (index, partition) to their leader. `outcomes` gets what became of each, by index."""
    asked = call.body
    assert isinstance(asked, NewMessages)
    peers, limit = call.api.peers, call.api.settings.max_batch_bytes
    peers.forwarded += 1
    requests = await off_loop(len(chosen), _requests, asked, chosen, limit)
    headers = [("X-Client-Id", call.values["X-Client-Id"])]
    refused: Problem | TierlogError | None = None
    for indexes, body in requests:
        if refused is None:
            try:
                told = await peers.ask(leader, "POST", call.request.rel_url.raw_path, headers=headers, data=body)
            except (Problem, TierlogError) as refusal:
                refused = refusal
            else:
                for index, result in zip(indexes, told["results"], strict=True):
                    outcomes[index] = _outcome(result)
                continue
        for index in indexes:
            outcomes[index] = refused


def _requests(asked: NewMessages, chosen: Sequence[tuple[int, int]], limit: int) -> list[tuple[list[int], bytes]]:
    """Bodies within the limit of a request, each with the indexes of its messages."""
    requests: list[tuple[list[int], list[bytes]]] = []
    size = limit + 1
    for index, partition in chosen:
        message = asked.messages[index]
        piece = orjson.dumps({**message.model_dump(exclude_defaults=True), "partition": partition})
        if size + len(piece) + 1 > limit:
            requests.append(([], []))
            size = len(_OPENING) + len(_CLOSING)
        indexes, pieces = requests[-1]
        indexes.append(index)
        pieces.append(piece)
        size += len(piece) + 1
    return [(indexes, _OPENING + b",".join(pieces) + _CLOSING) for indexes, pieces in requests]


def _outcome(result: dict[str, Any]) -> Stored | Problem:
    error = result.get("error")
    if error is not None:
        return from_document(int(error["status"]), error)
    return Stored(result["partition"], result["offset"], result["timestamp"])
