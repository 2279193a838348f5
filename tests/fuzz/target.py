"""The service under fire: how it is shot at, and what must hold afterwards."""

import socket
import struct
import time
from dataclasses import replace
from typing import Any

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.kafka.protocol.messages.metadata import MetadataRequest
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.kafka.protocol.schema import message_info
from hot_tier.record.records import decode_records
from tests.gateway.kafka.batches import batch
from tests.gateway.kafka.node import KAFKA, Running
from tests.gateway.kafka.wire import read_response, request_frame

DEADLINE_S = 15
CANARY = "canary"
TOPICS = ("fuzz-a", "fuzz-b")
SETTINGS = replace(KAFKA, io_timeout_ms=1000, fetch_max_wait_ms=100, max_request_bytes=8 * 1024 * 1024)


class Target:
    def __init__(self, running: Running) -> None:
        self.running = running
        self.canary: list[bytes] = []

    def shoot(self, data: bytes) -> bytes:
        """Send and say that nothing follows; all that comes back until the other side closes. A hang fails here."""
        with socket.create_connection((self.running.host, self.running.port), timeout=DEADLINE_S) as connection:
            received = b""
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while chunk := connection.recv(1 << 16):
                    received += chunk
            except (ConnectionResetError, BrokenPipeError):
                pass
            return received

    def ask(self, request: Any, version: int) -> Any:
        with socket.create_connection((self.running.host, self.running.port), timeout=DEADLINE_S) as connection:
            connection.sendall(request_frame(request, version))
            data = b""
            while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
                chunk = connection.recv(1 << 16)
                assert chunk, "closed without an answer"
                data += chunk
        return read_response(ApiKey(message_info(type(request)).api_key), version, data[4:])[1]

    def plant(self) -> None:
        forever = [CreatableTopicConfig("retention.ms", "-1")]
        topics = [CreatableTopic(name, 2, 1, configs=forever) for name in (CANARY, *TOPICS)]
        made = self.ask(CreateTopicsRequest(topics), 5)
        assert [topic.error_code for topic in made.topics] == [0, 0, 0]
        for number in range(20):
            self.canary.append(b"canary %d" % number)
            self.produce(CANARY, bytes(batch(self.canary[-1])))

    def produce(self, topic: str, records: bytes) -> int:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, records)])
        answer = self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        return answer.responses[0].partition_responses[0].error_code

    def fetch(self, topic: str, partition: int, offset: int = 0) -> Any:
        wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=4 * 1024 * 1024)
        request = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic=topic, partitions=[wanted])])
        return self.ask(request, 11).responses[0].partitions[0]

    def check(self) -> None:
        """It still answers, and the canary is alive and complete."""
        assert self.ask(ApiVersionsRequest(), 0).error_code == 0
        found = [record.value for record in decode_records(bytes(self.fetch(CANARY, 0).records))]
        assert found == self.canary
        self.canary.append(b"after %d" % len(self.canary))
        assert self.produce(CANARY, bytes(batch(self.canary[-1]))) == 0

    def check_all_partitions(self) -> None:
        """Everything that was accepted can be fetched and decoded from end to end."""
        for topic in self.ask(MetadataRequest(topics=None), 1).topics:
            for partition in topic.partitions:
                part = self.fetch(topic.name, partition.partition_index)
                offset = part.log_start_offset if part.error_code == 1 else 0
                while True:
                    part = self.fetch(topic.name, partition.partition_index, offset)
                    assert part.error_code == 0, (topic.name, partition.partition_index, offset)
                    if not part.records:
                        break
                    records = decode_records(bytes(part.records), skip_control=False)
                    assert records[0].offset <= offset <= records[-1].offset
                    offset = records[-1].offset + 1

    def wait_until_quiet(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.running.server.connections:
            assert time.monotonic() < deadline, "connections were left open"
            time.sleep(0.01)
