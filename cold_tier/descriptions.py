"""Descriptions of topics in the bucket, as bytes. docs/formats/topic-description.md describes them.

A description lets `tierlog archive restore` make a topic again with its settings, from the bucket alone.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cold_tier.errors import CorruptObject
from cold_tier.objects.store import Buffer
from cold_tier.sealed_json import read_sealed, write_sealed


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as its broker last described it. The fields are written in this order, under these names."""

    name: str
    id: UUID
    partitions: int
    replication_factor: int
    config: dict[str, str]
    created_ms: int


def write_description(description: TopicDescription) -> bytes:
    return write_sealed(description)


def read_description(data: Buffer, where: str) -> TopicDescription:
    """Raises CorruptObject if the description cannot be read."""
    try:
        found: dict[str, Any] = read_sealed(data)
        return TopicDescription(
            str(found["name"]),
            UUID(found["id"]),
            int(found["partitions"]),
            int(found["replication_factor"]),
            {str(name): str(value) for name, value in found["config"].items()},
            int(found["created_ms"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptObject(f"the description of this topic cannot be read: {error}", where=where) from error
