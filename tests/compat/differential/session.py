"""One broker that is asked, and everything it answered, by the name of the question and the version."""

import re
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gateway.kafka.protocol.schema import NO_ID, message_info
from tests.gateway.kafka.wire import read_response, request_frame

from .plain import plain

TIMEOUT_S = 8.0
LOADING = re.compile(r"error_code=14\b")
"""COORDINATOR_LOAD_IN_PROGRESS, at the top of an answer or in any of its parts."""
CLOSED = "no answer"
"""The broker closed the connection, or said nothing for so long."""


class Session:
    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._socket: socket.socket | None = None
        self.answers: dict[str, Any] = {}
        advertised = self.send(ApiVersionsRequest(), 0)
        self.versions = {
            entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in advertised.api_keys
        }
        self.shared: dict[int, range] = {}

    def each(self, api_key: ApiKey) -> Iterable[int]:
        """The versions that both brokers serve."""
        return self.shared[api_key]

    def ask(self, label: str, request: Any, version: int) -> Any:
        """Sends, and writes down the plain answer as `label vN`. Returns the answer itself."""
        answer = self.send(request, version)
        self.note(label, request, version, answer)
        return answer

    def note(self, label: str, request: Any, version: int, answer: Any) -> None:
        key = f"{ApiKey(message_info(type(request)).api_key).name} {label} v{version}"
        assert key not in self.answers, f"asked twice: {key}"
        self.answers[key] = plain(answer)

    def send(self, request: Any, version: int) -> Any:
        """Sends until the broker no longer says that it is still loading."""
        while True:
            frame = self.exchange(request_frame(request, version)[4:])
            if frame is None:
                return CLOSED
            answer = read_response(ApiKey(message_info(type(request)).api_key), version, frame)[1]
            if not LOADING.search(str(answer)):
                return answer
            time.sleep(0.05)

    def raw(self, label: str, frame: bytes) -> None:
        """A request that is no request: only whether an answer comes is compared."""
        self.answers[f"RAW {label}"] = CLOSED if self.exchange(frame) is None else "answered"

    def exchange(self, frame: bytes) -> bytes | None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, TIMEOUT_S)
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            return self._read(struct.unpack(">i", self._read(4))[0])
        except (ConnectionError, TimeoutError):
            self.close()
            return None

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return bytes(data)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def topic_id(self, name: str) -> UUID:
        answer = self.send(MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False), 12)
        found: UUID = answer.topics[0].topic_id if answer.topics else NO_ID
        return found
