"""The part of a batch of messages that another broker leads: sent there as a batch of its own.

Order holds per partition: what does not fit into one request follows when the one before is stored, and what follows a
request that failed is not sent.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.http.message_codec import new_message
from gateway.http.operation import Call
from gateway.http.problems import Problem, from_document
from gateway.http.producer import Stored
from gateway.off_loop import off_loop
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import TierlogError
from hot_tier.record.records import NewRecord

_OPENING, _CLOSING = b'{"messages":[', b"]}"


async def forward_batch(
    call: Call, leader: BrokerInfo, chosen: Sequence[tuple[int, int, NewRecord]], outcomes: list[Any]
) -> None:
    """Send these (index, partition, record) to their leader. `outcomes` gets what became of each, by index."""
    peers, limit = call.api.peers, call.api.settings.max_batch_bytes
    peers.forwarded += 1
    requests = await off_loop(len(chosen), _requests, chosen, limit)
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


def _requests(chosen: Sequence[tuple[int, int, NewRecord]], limit: int) -> list[tuple[list[int], bytes]]:
    """Bodies within the limit of a request, each with the indexes of its messages."""
    requests: list[tuple[list[int], list[bytes]]] = []
    size = limit + 1
    for index, partition, record in chosen:
        piece = orjson.dumps(new_message(partition, record))
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
