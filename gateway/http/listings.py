"""The JSON documents of lists in pages. The rules for documents are in `schemas`.

Brokers of other versions read a group's summary strictly, so what is added to it is given to clients alone.
"""

from pydantic import Field

from gateway.http.figures.values import GroupFigures, ReadFigures, TopicFigures
from gateway.http.schemas import GroupSummary, Reply


class TopicSummary(Reply):
    name: str
    id: str
    partitions: int
    replication_factor: int
    internal: bool
    figures: TopicFigures | None = Field(default=None, description="Missing where they were not asked for or not told.")
    reads: ReadFigures | None = Field(default=None, description="Missing where no group has read the topic, too.")


class Topics(Reply):
    topics: list[TopicSummary]
    total: int = Field(description="How many there are, on all pages.")


class GroupRow(GroupSummary):
    figures: GroupFigures | None = Field(default=None, description="Missing where they were not asked for or not told.")


class TopicGroup(Reply):
    group: str
    state: str
    members: int
    lag: int | None = Field(description="In this topic; null while one partition's lag is unknown.")


class TopicGroups(Reply):
    groups: list[TopicGroup]
    total: int = Field(description="How many there are, on all pages.")


class Groups(Reply):
    groups: list[GroupRow]
    total: int = Field(description="How many there are, on all pages.")
