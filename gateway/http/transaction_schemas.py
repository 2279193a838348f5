"""The JSON documents of the transactions' operations. The rules for documents are in `schemas`."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from gateway.http import parameters
from gateway.http.parameters import INT32_MAX
from gateway.http.schemas import OffsetNumber, PartitionNumber, Reply, Request, Stored, TopicName
from gateway.http.topic_settings import whole

MOST_OFFSETS: Final = 1_000

GroupName = Annotated[str, AfterValidator(parameters.group_name), WithJsonSchema(dict(parameters.GROUP_NAME_SCHEMA))]


class NewTransaction(Request):
    timeout_ms: Annotated[int, Field(ge=1, le=INT32_MAX), BeforeValidator(whole)] = Field(
        default=60_000,
        description="After so long the transaction is aborted; at most the broker's `transactions.max_timeout_ms`.",
    )


class BegunTransaction(Reply):
    transactional_id: str
    transaction: str = Field(description="Names the transaction: send it as `X-Transaction`.")
    timeout_ms: int


class TransactionResults(Reply):
    results: list[Stored]


class TransactionOffset(Request):
    topic: TopicName
    partition: PartitionNumber
    offset: OffsetNumber = Field(description="The offset to read next.")
    metadata: str = Field(default="", max_length=4096)


class TransactionOffsets(Request):
    group: GroupName
    offsets: list[TransactionOffset] = Field(min_length=1, max_length=MOST_OFFSETS)


class OffsetsAdded(Reply):
    added: Literal[True] = True


class EndedTransaction(Reply):
    transactional_id: str
    outcome: Literal["committed", "aborted"]


class TransactionSummary(Reply):
    transactional_id: str
    state: str
    producer_id: int
    started_ms: int | None = Field(description="Milliseconds since 1970; null while no transaction is open.")
    coordinator: int = Field(description="The broker that coordinates it.")


class Transactions(Reply):
    transactions: list[TransactionSummary]


class TransactionPartition(Reply):
    topic: str
    partition: int


class TransactionDescription(TransactionSummary):
    producer_epoch: int
    timeout_ms: int
    partitions: list[TransactionPartition] = Field(description="What the open transaction has written to.")
