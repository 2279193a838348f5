"""Whether a process listens at a broker's address: yes, no, or unknown.

The kernel refuses a connection at once when no process listens. Silence says nothing: the machine may be cut off or the
process stopped. Then only the lease tells.
"""

import asyncio
import socket
from enum import Enum, auto
from typing import Final

TIMEOUT_S: Final = 0.5


class Answer(Enum):
    ACCEPTED = auto()
    REFUSED = auto()
    """At every address that the host's name stands for."""
    SILENCE = auto()


async def knock(host: str, port: int) -> Answer:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, address in found:
                with socket.socket(family, kind, protocol) as probe:
                    probe.setblocking(False)
                    try:
                        await loop.sock_connect(probe, address)
                    except ConnectionRefusedError:
                        continue
                return Answer.ACCEPTED
    except OSError:
        return Answer.SILENCE
    return Answer.REFUSED if found else Answer.SILENCE


async def is_refused(host: str, port: int) -> bool:
    return await knock(host, port) is Answer.REFUSED
