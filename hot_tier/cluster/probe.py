"""Whether a broker's process is surely gone: its machine answers, and nobody listens at its address.

The kernel refuses a connection at once when no process listens. Silence says nothing: the machine may be cut off,
the process stopped; then only its lease tells.
"""

import asyncio
import socket
from typing import Final

TIMEOUT_S: Final = 0.5


async def is_refused(host: str, port: int) -> bool:
    """At every address that the host's name stands for; a name that stands for none is not refused."""
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
                return False
    except OSError:
        return False
    return bool(found)
