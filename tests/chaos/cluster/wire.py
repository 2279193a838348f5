"""Single requests to a single broker, without metadata, retries or any other help: what that broker says by itself.

Only what no client library lets one ask. Versions without flexible encoding, so that `struct` is enough.
"""

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.chaos.scenario import NOBODY

PRODUCE, LIST_OFFSETS, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0, 2, 3, 17, 36
LATEST = -1


class Refused(Exception):
    """The broker answered with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class End(NamedTuple):
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """What one broker believes of the cluster."""

    brokers: frozenset[int]
    controller: int
    partitions: dict[int, PartitionView]


class Wire:
    """One connection. `OSError` when it breaks or an answer takes longer than `timeout_s`."""

    def __init__(self, host: str, port: int, timeout_s: float, login: Mapping[str, str] = NOBODY) -> None:
        """`login` has librdkafka's names. Raises Refused if the broker does not take it."""
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.settimeout(timeout_s)
        self._correlation = 0
        if login:
            try:
                self._log_in(host, login)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def produce(self, topic: str, partition: int, value: bytes, *, timeout_ms: int = 30_000) -> int:
        """The offset of one record, acks=all, no producer id."""
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, len(value) + 1000)
        builder.append(0, int(time.time() * 1000), None, value, [])
        batch = bytes(builder.build())
        body = (
            struct.pack(">hhii", -1, -1, timeout_ms, 1) + _string(topic) + struct.pack(">iii", 1, partition, len(batch))
        )
        answer = self._call(PRODUCE, 3, body + batch)
        answer.skip_topic()
        partition, code, offset = answer.take(">ihq")
        if code:
            raise Refused(code)
        return int(offset)

    def end(self, topic: str, partition: int) -> End:
        """The high watermark, and the epoch in which this broker leads."""
        body = struct.pack(">ibi", -1, 0, 1) + _string(topic) + struct.pack(">iiiq", 1, partition, -1, LATEST)
        answer = self._call(LIST_OFFSETS, 4, body)
        answer.take(">i")
        answer.skip_topic()
        partition, code, _, offset, epoch = answer.take(">ihqqi")
        if code:
            raise Refused(code)
        return End(offset, epoch)

    def metadata(self, topic: str) -> View:
        answer = self._call(METADATA, 7, struct.pack(">i", 1) + _string(topic) + b"\0")
        _, count = answer.take(">ii")
        brokers = set()
        for _ in range(count):
            brokers.add(answer.take(">i")[0])
            answer.string()
            answer.take(">i")
            answer.string()
        answer.string()
        controller, _topics, _code = answer.take(">iih")
        answer.string()
        _internal, count = answer.take(">?i")
        partitions = {}
        for _ in range(count):
            _code, number, leader, epoch = answer.take(">hiii")
            partitions[number] = PartitionView(leader, epoch, answer.numbers(), answer.numbers())
            answer.numbers()
        return View(frozenset(brokers), controller, partitions)

    def _log_in(self, host: str, login: Mapping[str, str]) -> None:
        trusting = ssl.create_default_context(cafile=login["ssl.ca.location"])
        self._socket = trusting.wrap_socket(self._socket, server_hostname=host)
        token = f"\0{login['sasl.username']}\0{login['sasl.password']}".encode()
        asked = ((SASL_HANDSHAKE, 1, _string("PLAIN")), (SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token))
        for request in asked:
            (code,) = self._call(*request).take(">h")
            if code:
                raise Refused(code)

    def _call(self, api: int, version: int, body: bytes) -> "_Answer":
        self._correlation += 1
        head = struct.pack(">hhi", api, version, self._correlation) + _string("witness")
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (length,) = struct.unpack(">i", self._exactly(4))
        answer = _Answer(self._exactly(length))
        (correlation,) = answer.take(">i")
        assert correlation == self._correlation
        return answer

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise ConnectionResetError("closed by the broker")
            parts += part
        return bytes(parts)


class _Answer:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, layout: str) -> tuple:
        found = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return found

    def string(self) -> bytes:
        (length,) = self.take(">h")
        self._at += max(length, 0)
        return self._data[self._at - max(length, 0) : self._at]

    def numbers(self) -> tuple[int, ...]:
        (count,) = self.take(">i")
        return self.take(f">{count}i")

    def skip_topic(self) -> None:
        """The heads of one topic and one partition in arrays."""
        self.take(">i")
        self.string()
        self.take(">i")


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
