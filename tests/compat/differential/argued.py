"""The differences that we want. Each stands in `docs/KAFKA_COMPATIBILITY.md` under its name, with the reason."""

import re
from typing import NamedTuple

from .run import Difference


class Argued(NamedTuple):
    name: str
    question: str
    """A pattern: the API, what is asked, the version."""
    path: str = ""
    """A pattern that the place in the answer matches; empty for every place."""


ARGUED = [
    Argued("Names that differ by a dot and an underscore", "CREATE_TOPICS an underscore in the place of the dot"),
    Argued("An id for a topic that is only checked", "CREATE_TOPICS (only checked|checked twice)", "topic_id"),
    Argued("Default number of partitions", "CREATE_TOPICS defaults", "num_partitions"),
    Argued("Settings of our own", "(DESCRIBE_CONFIGS (?!all of a group)|CREATE_TOPICS )", "configs$|^$"),
    Argued(
        "What is named twice",
        "(FIND_COORDINATOR a group|OFFSET_FETCH .*, one|DESCRIBE_GROUPS one|DESCRIBE_CONFIGS a topic) twice",
    ),
    Argued("Where a default comes from", "DESCRIBE_CONFIGS .*", "synonyms$|config_source$"),
    Argued("A topic that is made by asking", "METADATA made by asking"),
    Argued("Metadata by id in versions 10 and 11", "METADATA by id .*v1[01]$"),
    Argued(
        "Codecs that are none", "PRODUCE wrong: (codec 5|codec 7|gzip that is none|zstd that is none)", "error_code"
    ),
    Argued("Old message formats", "PRODUCE wrong: magic 1", "error_code"),
    Argued("Bytes behind the last batch", "PRODUCE wrong: a byte too many"),
    Argued("Timestamps that only a broker gives", "PRODUCE wrong: (append time|a timestamp below 0)"),
    Argued("Time of a repeated batch", "PRODUCE (sequence: .* again|transaction: )", "log_append_time_ms"),
    Argued("Transactions by their age", "LIST_TRANSACTIONS empty, for an hour", "transaction_states"),
    Argued("A late commit", "END_TXN aborted, commit, epoch before(, again)? v5", "error_code"),
    Argued("Log start of a refused batch", "PRODUCE ", "log_start_offset"),
    Argued("Operations that are none", "INCREMENTAL_ALTER_CONFIGS an operation that is none", "error_code"),
    Argued("Transactions before the first", "DESCRIBE_TRANSACTIONS an unknown one"),
    Argued("Quotas that cannot be described", "DESCRIBE_CLIENT_QUOTAS (an unknown kind|match 9)", "entries"),
]

NOT_SERVED = {
    "Delegation tokens": {38, 39, 40, 41},
    "The new kinds of groups": {69, 76, 77, 78, 79, 80, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92},
    "Controllers of KRaft": {81},
}
"""API keys that Kafka serves and we do not."""
OLDER = {
    "Topic ids in requests": {0: 12, 1: 17, 8: 9, 9: 9},
    "Cordoned log directories": {35: 4},
}
"""API keys whose latest version here is older than Kafka's, with ours."""


def reason(one: Difference) -> str | None:
    """Returns the name of the argument that covers a difference."""
    for argued in ARGUED:
        if re.match(argued.question, one.question) and re.search(argued.path, one.path):
            return argued.name
    return None
