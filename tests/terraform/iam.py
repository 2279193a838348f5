"""S3 requests as IAM sees them, and IAM policies as IAM reads them: just what the policies in `terraform/` use.

A request becomes the actions that S3 checks for it, as AWS's Service Authorization Reference lists them. Anything that
is not known here is an error, never an allowance.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree


@dataclass(frozen=True)
class Asked:
    """One thing that somebody wants to do."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.action} on {self.resource} {dict(self.context) or ''}"


def s3_actions(method: str, path: str, query: Mapping[str, str], body: bytes) -> Iterator[Asked]:
    """What a path-style request asks for."""
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    if not key and method == "POST" and "delete" in query:
        for found in ElementTree.fromstring(body).iter():
            if found.tag.rpartition("}")[2] == "Key":
                yield Asked("s3:DeleteObject", f"{arn}/{found.text}")
        return
    if not key:
        yield Asked(_bucket_action(method, query), arn, {"s3:prefix": query["prefix"]} if "prefix" in query else {})
        return
    yield Asked(_object_action(method, query), f"{arn}/{key}")


def _bucket_action(method: str, query: Mapping[str, str]) -> str:
    assert method == "HEAD" or (method == "GET" and ("list-type" in query or not query)), (method, query)
    return "s3:ListBucket"


def _object_action(method: str, query: Mapping[str, str]) -> str:
    known = set(query) <= {"uploads", "uploadId", "partNumber", "x-id"}
    action = {
        "GET": "s3:GetObject",
        "HEAD": "s3:GetObject",
        "PUT": "s3:PutObject",
        "POST": "s3:PutObject",  # Begins or completes an upload in parts.
        "DELETE": "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject",
    }.get(method)
    assert known and action is not None, (method, query)
    return action


def key_actions(asked: Iterable[Asked], key_arn: str, via: str) -> Iterator[Asked]:
    """What S3 asks of KMS in the caller's name for objects that are encrypted with a key; parts are decrypted too."""
    needs = {"s3:GetObject": ("kms:Decrypt",), "s3:PutObject": ("kms:GenerateDataKey", "kms:Decrypt")}
    for action in sorted({action for each in asked for action in needs.get(each.action, ())}):
        yield Asked(action, key_arn, {"kms:ViaService": via})


def allowing(policy: Mapping[str, Any], asked: Asked) -> list[tuple[int, str, str]]:
    """The permissions (statement, action, resource) of a policy that allow this; none: it is denied."""
    return [
        permission
        for permission in permissions(policy)
        if permission[1] == asked.action
        and _like(permission[2], asked.resource)
        and _holds(policy["Statement"][permission[0]].get("Condition", {}), asked)
    ]


def permissions(policy: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    """Every (statement, action, resource) that a policy grants."""
    found = []
    for number, statement in enumerate(policy["Statement"]):
        assert statement["Effect"] == "Allow"
        assert not {"NotAction", "NotResource"} & statement.keys()
        found += [(number, action, resource) for action in statement["Action"] for resource in statement["Resource"]]
    return found


def _holds(conditions: Mapping[str, Any], asked: Asked) -> bool:
    for operator, wanted in conditions.items():
        for name, patterns in wanted.items():
            value = asked.context.get(name)
            some = [patterns] if isinstance(patterns, str) else patterns
            compare = {"StringLike": _like, "StringEquals": str.__eq__}[operator]
            if value is None or not any(compare(pattern, value) for pattern in some):
                return False
    return True


def _like(pattern: str, value: str) -> bool:
    """IAM's wildcards: * and ? alone, both also over slashes."""
    return fnmatchcase(value, re.sub(r"([\[\]])", r"[\1]", pattern))
