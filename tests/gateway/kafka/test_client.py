"""The client that brokers use among themselves."""

import asyncio
import socket

from gateway.kafka.client import KafkaClient
from tests.support.waiting import until


class Deaf:
    def answered(self, number, body):
        raise AssertionError

    def lost(self, error):
        pass


async def test_what_is_not_sent_when_a_connection_ends_never_comes():
    """As in a cut network: the other side takes nothing, the client gives up, and later all is mended."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        loop = asyncio.get_running_loop()
        host, port = listening.getsockname()
        transport, client = await loop.create_connection(lambda: KafkaClient(b"test", Deaf()), host, port)
        accepted, _ = listening.accept()
        with accepted:
            sent = b"x" * 1_000_000
            transport.write(sent)
            await asyncio.sleep(0.05)
            client.close()
            await until(transport.is_closing)
            await asyncio.sleep(0.05)
            accepted.settimeout(10)
            received = 0
            try:
                while data := accepted.recv(100_000):
                    received += len(data)
            except ConnectionResetError:
                pass
            else:
                raise AssertionError("the connection ended as if all had been sent")
    assert received < len(sent)
