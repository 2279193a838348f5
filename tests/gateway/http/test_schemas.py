"""Documents are taken exactly as their published schemas say."""

import json

import jsonschema_rs
import pytest
from pydantic import BaseModel

from gateway.http.message_batch import _record
from gateway.http.operation import read_document
from gateway.http.problems import Problem
from gateway.http.schemas import NewCommit, NewMessages, NewTopic, OffsetReset, TopicChange
from hot_tier.log.config import MAX_INT, MAX_LONG, TOPIC_SETTINGS, TopicConfig


def refusal(model: type[BaseModel], raw: bytes) -> Problem:
    with pytest.raises(Problem) as refused:
        read_document(model, raw)
    return refused.value


def agrees(model: type[BaseModel], raw: bytes) -> bool:
    """Whether the published schema takes what the server takes; its verdict."""
    published = jsonschema_rs.validator_for(model.model_json_schema()).is_valid(json.loads(raw))
    try:
        read_document(model, raw)
        taken = True
    except Problem:
        taken = False
    assert taken == published, raw
    return taken


@pytest.mark.parametrize("raw", [b"", b"{", b"[1,2", b"\xff\xfe", b'{"name":"\xff"}', b'{"name": "\\ud800"}', b"nul"])
def test_what_is_not_json_is_called_that(raw: bytes) -> None:
    assert refusal(NewTopic, raw).kind.name == "bad-json"


@pytest.mark.parametrize(
    ("raw", "detail"),
    [
        (b"[]", "the document: Input should be an object"),
        (b"{}", "/name: Field required"),
        (b'{"name": 5}', "/name: Input should be a valid string"),
        (b'{"name": "a", "partitons": 3}', "/partitons: Extra inputs are not permitted"),
        (b'{"name": "a", "partitions": "3"}', "/partitions: Input should be a valid integer"),
        (b'{"name": "a", "partitions": true}', "/partitions: Input should be a valid integer"),
        (b'{"name": "a", "partitions": 0}', "/partitions: Input should be greater than or equal to 1"),
        (b'{"name": "a", "config": []}', "/config: must be an object of settings"),
        (
            b'{"name": "a", "config": {"retention.msx": 1}}',
            "/config: there is no topic setting 'retention.msx'; GET /api/v1/topics/{topic} lists them",
        ),
        (
            b'{"name": "a", "config": {"cleanup.policy": "burn"}}',
            "/config: cleanup.policy must be some of delete, compact, separated by commas, or empty",
        ),
    ],
)
def test_a_document_of_the_wrong_shape_is_refused_by_place(raw: bytes, detail: str) -> None:
    problem = refusal(NewTopic, raw)
    assert problem.kind.status == 400
    assert problem.detail == detail
    assert problem.extra["errors"][0]["pointer"] == detail.split(":")[0].replace("the document", "")


@pytest.mark.parametrize("name", [".", "..", "", "a/b", "a b", "ä", "a" * 250, "a\n"])
def test_names_that_no_topic_may_have(name: str) -> None:
    assert not agrees(NewTopic, json.dumps({"name": name}).encode())


def test_settings_are_text_numbers_or_booleans() -> None:
    raw = b'{"name":"a","config":{"retention.ms":1000,"remote.storage.enable":true,"min.cleanable.dirty.ratio":0.25}}'
    topic = read_document(NewTopic, raw)
    assert isinstance(topic, NewTopic)
    assert topic.config == {
        "retention.ms": "1000",
        "remote.storage.enable": "true",
        "min.cleanable.dirty.ratio": "0.25",
    }


def test_every_default_is_taken_by_the_published_schema() -> None:
    for name, setting in TOPIC_SETTINGS.items():
        value = getattr(TopicConfig(), setting.name)
        shown = ",".join(value) if isinstance(value, tuple) else value
        assert agrees(NewTopic, json.dumps({"name": "a", "config": {name: shown}}).encode())


def test_every_numeric_setting_takes_what_is_published_as_text() -> None:
    for name, setting in TOPIC_SETTINGS.items():
        if setting.metadata["kind"].high in (MAX_INT, MAX_LONG):
            for text in ("2000", "999999999"):
                assert agrees(NewTopic, json.dumps({"name": "a", "config": {name: text}}).encode()), name


@pytest.mark.parametrize(
    ("model", "raw", "taken"),
    [
        (NewTopic, b'{"name":"a","config":{"retention.ms":-2}}', False),
        (NewTopic, b'{"name":"a","config":{"retention.ms":null}}', False),
        (NewTopic, b'{"name":"a","config":{"retention.ms":[1]}}', False),
        (NewTopic, b'{"name":"a","config":{"flush":"never"}}', False),
        (NewTopic, b'{"name":"a","config":{"remote.storage.enable":"yes"}}', False),
        (NewTopic, b'{"name":"a","config":{"retention.ms":"86400000"}}', True),
        (NewTopic, b'{"name":"a","config":{"retention.ms":"soon"}}', False),
        (TopicChange, b'{"config":{"retention.ms":null}}', True),
        (TopicChange, b'{"config":{"no.such":null}}', False),
        (TopicChange, b"{}", True),
        (NewCommit, b'{"topic":"a","partition":0,"offset":9223372036854775807}', True),
        (NewCommit, b'{"topic":"a","partition":0,"offset":9223372036854775808}', False),
        (NewCommit, b'{"topic":"a","partition":-1,"offset":0}', False),
        (OffsetReset, b'{"topic":"a","to":"earliest"}', True),
        (OffsetReset, b'{"topic":"a","to":1748779200000}', True),
        (OffsetReset, b'{"topic":"a","to":"2025-06-01T12:00:00Z"}', True),
        (OffsetReset, b'{"topic":"a","to":true}', False),
        (OffsetReset, b'{"topic":"a"}', False),
        (NewMessages, b'{"messages":[]}', False),
        (NewMessages, b'{"messages":[{}]}', True),
        (NewMessages, b'{"messages":[{"value":5}]}', False),
        (NewMessages, b'{"messages":[{"value":"x","value_encoding":"hex"}]}', False),
    ],
)
def test_server_and_schema_agree(model: type[BaseModel], raw: bytes, taken: bool) -> None:
    assert agrees(model, raw) is taken


@pytest.mark.parametrize(
    ("raw", "valid"),
    [
        (b'{"messages":[{"value":"!!","value_encoding":"base64"}]}', False),
        (b'{"messages":[{"value":"AAA","value_encoding":"base64"}]}', False),
        (b'{"messages":[{"value":"AAA=","value_encoding":"base64"}]}', True),
        (b'{"messages":[{"key":"!!","key_encoding":"base64"}]}', False),
        (b'{"messages":[{"headers":[{"key":"a","value":"!!","value_encoding":"base64"}]}]}', False),
        (b'{"messages":[{"value":null,"value_encoding":"base64"}]}', True),
        (b'{"messages":[{"value":"!!"}]}', True),
    ],
)
def test_base64_is_published_and_checked(raw: bytes, valid: bool) -> None:
    """The server checks it when it decodes, once."""
    assert jsonschema_rs.validator_for(NewMessages.model_json_schema()).is_valid(json.loads(raw)) is valid
    document = read_document(NewMessages, raw)
    assert isinstance(document, NewMessages)
    if valid:
        _record(document.messages[0], 0, 0)
    else:
        with pytest.raises(Problem):
            _record(document.messages[0], 0, 0)
