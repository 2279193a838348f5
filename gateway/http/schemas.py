"""The JSON documents of the API's requests and answers. Requests are checked; /openapi.json describes all of them.

Requests are strict: no unknown members, no numbers as text, and the limits of the wire format. A topic's `config` is
less strict; its rules are in `topic_settings`.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)

from gateway.http import parameters
from gateway.http.parameters import INT32_MAX, INT64_MAX, TIME_SCHEMA, TOPIC_NAME_SCHEMA
from gateway.http.topic_settings import ChangedSettings, NewSettings, whole
from hot_tier.cluster.api_keys import OPERATIONS


def _time(value: Any) -> int:
    value = whole(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a time as text or as milliseconds since 1970")
    return parameters.parse_time(str(value))


def _operation(value: str) -> str:
    if value not in OPERATIONS:
        raise ValueError(f"must be one of {', '.join(sorted(OPERATIONS))}")
    return value


def _reset_target(value: Any) -> Any:
    return value if value in ("earliest", "latest") else _time(value)


TopicName = Annotated[str, AfterValidator(parameters.topic_name), WithJsonSchema(dict(TOPIC_NAME_SCHEMA))]
PartitionNumber = Annotated[int, Field(ge=0, le=INT32_MAX), BeforeValidator(whole)]
OffsetNumber = Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(whole)]
PartitionCount = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(whole)]
ReplicaCount = Annotated[int, Field(ge=1, le=100), BeforeValidator(whole)]
DeliveryCount = Annotated[int, Field(ge=1, le=INT32_MAX), BeforeValidator(whole)]
Time = Annotated[int, PlainValidator(_time), WithJsonSchema(dict(TIME_SCHEMA))]
ResetTarget = Annotated[
    int | Literal["earliest", "latest"],
    PlainValidator(_reset_target),
    WithJsonSchema({"anyOf": [{"enum": ["earliest", "latest"]}, *TIME_SCHEMA["anyOf"]]}),
]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
BASE64_PATTERN: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Encoding = Literal["text", "base64"]
MAX_MESSAGES: Final = 100_000
MAX_HEADERS: Final = 1_000
"""Per message."""


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# Messages


def _base64_when_said(member: str) -> dict[str, Any]:
    return {
        "if": {"properties": {f"{member}_encoding": {"const": "base64"}}, "required": [f"{member}_encoding"]},
        "then": {"properties": {member: {"anyOf": [{"type": "string", "pattern": BASE64_PATTERN}, {"type": "null"}]}}},
    }


class NewHeader(Request):
    model_config = ConfigDict(json_schema_extra=_base64_when_said("value"))
    key: str = Field(max_length=1024)
    value: str | None = None
    value_encoding: Encoding = "text"


class NewMessage(Request):
    model_config = ConfigDict(json_schema_extra={"allOf": [_base64_when_said("key"), _base64_when_said("value")]})
    key: str | None = None
    key_encoding: Encoding = "text"
    value: str | None = Field(default=None, description="Null or missing: a tombstone.")
    value_encoding: Encoding = "text"
    headers: list[NewHeader] = Field(default_factory=list, max_length=MAX_HEADERS)
    partition: PartitionNumber | None = Field(
        default=None, description="Without it the key decides, and without a key messages are spread evenly."
    )
    timestamp: OffsetNumber | None = Field(default=None, description="Milliseconds since 1970; now when missing.")


class NewMessages(Request):
    messages: list[NewMessage] = Field(min_length=1, max_length=MAX_MESSAGES)


class Stored(Reply):
    topic: str
    partition: int
    offset: int = Field(ge=0)
    timestamp: int = Field(description="Milliseconds since 1970.")


class ProblemDocument(BaseModel):
    """RFC 9457; some problems have more members."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(examples=["urn:tierlog:problem:unknown-topic"])
    title: str
    status: int
    detail: str
    instance: str
    hint: str = Field(description="What to do next.")


class NotStored(Reply):
    error: ProblemDocument


class BatchResults(Reply):
    results: list[Stored | NotStored]


class Header(Reply):
    key: str | None
    value: str | None
    value_encoding: Literal["base64"] = Field(default="base64", description="Present when the value is not UTF-8.")


class Message(Reply):
    offset: int = Field(ge=0)
    key: str | None
    key_encoding: Literal["base64"] = Field(default="base64", description="Present when the key is not UTF-8.")
    value: str | None = Field(description="Base64, or as `value_encoding` was asked for; null is a tombstone.")
    value_encoding: Literal["base64"] = Field(
        default="base64", description="Present when text was asked for and the value is not UTF-8."
    )
    timestamp: int = Field(description="Milliseconds since 1970.")
    headers: list[Header]


class Messages(Reply):
    messages: list[Message]
    next_offset: int = Field(ge=0, description="Where to read on.")


# Topics and the cluster


class NewTopic(Request):
    name: TopicName
    partitions: PartitionCount | None = None
    replication_factor: ReplicaCount | None = None
    config: NewSettings = Field(default_factory=dict)


class TopicChange(Request):
    partitions: PartitionCount | None = Field(default=None, description="More than there are.")
    config: ChangedSettings = Field(
        default_factory=dict, description="Settings to change; null puts one back to its default."
    )


class PartitionDescription(Reply):
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    log_start_offset: int | None = Field(description="Null, as the members below, on a node that does not lead it.")
    high_watermark: int | None
    last_stable_offset: int | None = Field(description="Where a read ends: below it every record is committed.")
    log_end_offset: int | None
    size_bytes: int | None
    segments: int | None


class SettingDescription(Reply):
    value: str
    source: Literal["topic", "default"]


class TopicDescription(Reply):
    name: str
    id: str
    internal: bool
    created_ms: int
    replication_factor: int
    partitions: list[PartitionDescription]
    config: dict[str, SettingDescription]


class Broker(Reply):
    id: int
    host: str
    port: int
    rack: str | None
    host_name: str | None = Field(description="The machine it runs on, where several brokers may run.")
    http_host: str
    http_port: int
    draining: bool = Field(description="It stops or is decommissioned: it gets no leadership and no new replicas.")
    version: str


class Cluster(Reply):
    cluster_id: str
    node_id: int
    controller: int | None
    version: str
    brokers: list[Broker]
    topics: int
    partitions: int
    metadata_error: str | None = Field(
        description="Why the metadata store does not answer this node; the rest is then what it saw last."
    )


class Health(Reply):
    status: Literal["ok"] = "ok"


class Readiness(Health):
    warnings: list[str] = Field(description="What is wrong though the node serves, such as damaged files.")


# Consumer groups


class NewCommit(Request):
    topic: TopicName
    partition: PartitionNumber
    offset: OffsetNumber = Field(description="The offset to read next.")
    metadata: str = Field(default="", max_length=4096)
    expected_offset: OffsetNumber | None = Field(
        default=None, description="If given: commit only if this is the committed offset now; null: there is none."
    )


class Committed(Reply):
    committed: Literal[True] = True


class OffsetReset(Request):
    topic: TopicName
    partition: PartitionNumber | None = Field(default=None, description="All partitions of the topic when missing.")
    to: ResetTarget
    dry_run: bool = Field(default=False, description="Only show where the group would be.")


class GroupOffset(Reply):
    topic: str
    partition: int
    offset: int | None = Field(description="Null where a member reads the partition and nothing is committed.")
    metadata: str
    pending: bool = Field(description="An open transaction has committed another offset, which may replace this one.")
    log_start_offset: int | None
    high_watermark: int | None
    lag: int | None = Field(
        description="Null where nothing is committed (how much is read is not known), the topic is gone, or the "
        "partition's leader does not answer."
    )


class GroupOffsets(Reply):
    group: str
    offsets: list[GroupOffset]
    lag: int | None = Field(
        description="Over all partitions of topics that exist. Null while one's is unknown, and where there is none."
    )


class GroupSummary(Reply):
    group: str
    state: str
    protocol_type: str
    members: int


class AssignedTopic(Reply):
    topic: str
    partitions: list[int]


class Member(Reply):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[AssignedTopic] | None = Field(description="Null for a group that is not one of consumers.")


class GroupDescription(Reply):
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[Member]


# Dead letters


class NewDeadLetter(Request):
    topic: TopicName
    partition: PartitionNumber
    offset: OffsetNumber
    reason: Reason


class NewFailure(NewDeadLetter):
    max_deliveries: DeliveryCount | None = Field(default=None, description="Instead of the node's setting.")


class DeadLettered(Reply):
    dead_lettered: Literal[True] = True
    topic: str
    partition: int
    offset: int
    committed_offset: int | None = Field(description="The group's committed offset now; null when it has none.")


class FailureCounted(Reply):
    failures: int
    max_deliveries: int
    dead_lettered: bool
    dead_letter: DeadLettered | None


class DeadLetterCount(Reply):
    partition: int
    count: int


class DeadLetterTopic(Reply):
    topic: str
    dead_letter_topic: str
    count: int
    partitions: list[DeadLetterCount]


class FailingRecord(Reply):
    topic: str
    partition: int
    offset: int
    failures: int
    reason: str
    last_failure_ms: int


class GroupDeadLetters(Reply):
    group: str
    topics: list[DeadLetterTopic]
    failing: list[FailingRecord]


class NewPassword(Request):
    password: str = Field(min_length=1, max_length=1024)


class User(Reply):
    name: str
    mechanisms: list[str]


class Users(Reply):
    users: list[User]


ScopeName = Annotated[str, AfterValidator(_operation), WithJsonSchema({"type": "string", "enum": sorted(OPERATIONS)})]


class NewApiKey(Request):
    user: str = Field(min_length=1, max_length=249)
    expires_ms: Annotated[int, Field(ge=0, le=2**53), BeforeValidator(whole)] | None = None
    """Milliseconds since the epoch."""
    scope: Annotated[list[ScopeName], Field(min_length=1, max_length=20)] | None = None


class ApiKey(Reply):
    id: str
    user: str
    created_ms: int
    expires_ms: int | None
    scope: list[str] | None


class CreatedApiKey(ApiKey):
    key: str


class ApiKeys(Reply):
    api_keys: list[ApiKey]
