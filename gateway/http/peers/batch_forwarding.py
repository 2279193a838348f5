"""Forwards the messages of a batch that another broker leads, as a batch of their own.

The order within a partition is kept: if the messages do not fit into one request, the next request is sent when the one
before is stored. After a request that failed, no more are sent.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.http.message_codec import new_message
from gateway.http.operation import Call
from gateway.http.peers.behalf import SENDER, write_sender
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
    """Sends these (index, partition, record) to their leader. Puts each result into `outcomes`, by index."""
    peers, limit = call.api.peers, call.api.settings.max_batch_bytes
    peers.forwarded += 1
    requests = await off_loop(len(chosen), _requests, chosen, limit)
    headers = [("X-Client-Id", call.values["X-Client-Id"]), (SENDER, write_sender(call.principal))]
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
    """Returns request bodies within the size limit, each with the indexes of its messages."""
    requests: list[tuple[list[int], bytearray]] = []
    for index, partition, record in chosen:
        piece = orjson.dumps(new_message(partition, record))
        if not requests or len(requests[-1][1]) + len(piece) + 1 + len(_CLOSING) > limit:
            requests.append(([], bytearray(_OPENING)))
        indexes, body = requests[-1]
        # The piece is not kept: its bytes have a buffer of 4 KB.
        body += b"," + piece if indexes else piece
        indexes.append(index)
    return [(indexes, bytes(body + _CLOSING)) for indexes, body in requests]


def _outcome(result: dict[str, Any]) -> Stored | Problem:
    error = result.get("error")
    if error is not None:
        return from_document(int(error["status"]), error)
    return Stored(result["partition"], result["offset"], result["timestamp"])
