"""A handler's failure as the response of any API in any version: told, or known not to be tellable."""

import random
from dataclasses import fields, is_dataclass

import pytest

from gateway.kafka.error_response import error_response
from gateway.kafka.protocol.api_keys import ApiKey, request_class, response_class
from gateway.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from gateway.kafka.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from gateway.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from gateway.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gateway.kafka.protocol.schema import message_info
from gateway.kafka.protocol.writers import writer
from tests.gateway.kafka.samples import sample

CODE = 41


def codes(value):
    for f in fields(value):
        inner = getattr(value, f.name)
        if f.name.endswith("error_code"):
            yield inner
        elif is_dataclass(inner):
            yield from codes(inner)
        elif isinstance(inner, list):
            for item in inner:
                if is_dataclass(item):
                    yield from codes(item)


@pytest.mark.parametrize("api_key", list(ApiKey))
def test_every_error_code_is_filled_in_and_the_response_can_be_written(api_key):
    cls = response_class(api_key)
    for version in message_info(cls).versions:
        told = 0
        for seed in range(20):
            request = sample(request_class(api_key), version, random.Random(seed))
            made = error_response(cls, version, request, CODE, "why")
            if made is not None:
                writer(cls, version)(made, [].append)
                assert CODE in set(codes(made))
                told += 1
        assert told > 5


def test_each_thing_asked_for_is_answered_by_its_name():
    request = CreateTopicsRequest(topics=[CreatableTopic("a"), CreatableTopic("b")])
    made = error_response(CreateTopicsResponse, 5, request, CODE, "why")
    assert [(topic.name, topic.error_code, topic.error_message) for topic in made.topics] == [
        ("a", CODE, "why"),
        ("b", CODE, "why"),
    ]

    made = error_response(DeleteGroupsResponse, 2, DeleteGroupsRequest(["g", "h"]), CODE, "why")
    assert [(group.group_id, group.error_code) for group in made.results] == [("g", CODE), ("h", CODE)]

    partition = OffsetCommitRequestPartition(partition_index=3)
    request = OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    made = error_response(OffsetCommitResponse, 8, request, CODE, "why")
    answer = made.topics[0].partitions[0]
    assert (made.topics[0].name, answer.partition_index, answer.error_code) == ("t", 3, CODE)

    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(7, b"")])
    made = error_response(ProduceResponse, 9, ProduceRequest(topic_data=[data]), CODE, "why")
    answer = made.responses[0].partition_responses[0]
    assert (made.responses[0].name, answer.index, answer.error_code) == ("t", 7, CODE)


def test_nothing_asked_for_and_no_place_at_the_top():
    assert error_response(MetadataResponse, 12, MetadataRequest(topics=None), CODE, "why") is None
    assert error_response(MetadataResponse, 13, MetadataRequest(topics=None), CODE, "why").error_code == CODE
