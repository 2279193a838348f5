"""/openapi.json, rendered from the operations that the server routes."""

from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from gateway.http.operation import JSON, Answer, Document, Operation, RawBody
from gateway.http.problems import MEDIA_TYPE
from gateway.http.schemas import ProblemDocument

REF_TEMPLATE: Final = "#/components/schemas/{model}"

_STATUS_TEXT: Final = {
    400: "The request is malformed.",
    403: "The sender may not do it, a web page of another site sent it, or the name in `Host` is not the broker's.",
    404: "It names something that does not exist.",
    406: "No representation matches `Accept`.",
    409: "What is there now refuses the request.",
    410: "The key of archived records was destroyed; nobody can read them any more.",
    413: "The body or the message is too large.",
    415: "The body has the wrong media type.",
    503: "Try again.",
}

_TAGS: Final = {
    "messages": "Producing and consuming.",
    "sql": "Queries over topics.",
    "topics": "Topics and their settings.",
    "groups": "Consumer groups and their offsets.",
    "transactions": "Messages and offsets that count together or not at all.",
    "dead letters": "Records that a group could not handle.",
    "archive": "What is in the bucket.",
    "users": "Users and their passwords.",
    "access rules": "Who may do what.",
    "console": "The web pages, and who looks at them.",
    "service": "The node and the cluster.",
}


def render(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    every = list(operations)
    refs, components = _schemas(every)
    paths: dict[str, dict[str, Any]] = {}
    for operation in every:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tierlog",
            "version": version,
            "description": "A log service: topics of records, produced and consumed over HTTP or by any Kafka client.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {"schemas": components},
    }


Refs = dict[type[BaseModel], dict[str, Any]]


def _schemas(operations: list[Operation]) -> tuple[Refs, dict[str, Any]]:
    used: dict[type[BaseModel], JsonSchemaMode] = {ProblemDocument: "serialization"}
    for operation in operations:
        if isinstance(operation.body, Document):
            used[operation.body.model] = "validation"
        for answer in operation.answers.values():
            for content in answer.content.values():
                if isinstance(content, type):
                    used[content] = "serialization"
    found, document = models_json_schema(list(used.items()), ref_template=REF_TEMPLATE)
    return {model: found[model, mode] for model, mode in used.items()}, document["$defs"]


def _operation(operation: Operation, refs: Refs) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [
            {
                "name": each.name,
                "in": each.where,
                "required": each.required,
                "description": each.description,
                "schema": dict(each.schema),
            }
            for each in operation.parameters
        ],
        "responses": _responses(operation, refs),
    }
    if operation.description:
        described["description"] = operation.description
    match operation.body:
        case RawBody(description=text):
            raw = {"schema": {"type": "string", "format": "binary"}}
            described["requestBody"] = {
                "required": False,
                "description": text,
                "content": {"application/octet-stream": raw, "*/*": raw},
            }
        case Document(model=model):
            described["requestBody"] = {"required": True, "content": {JSON: {"schema": refs[model]}}}
    return described


def _responses(operation: Operation, refs: Refs) -> dict[str, Any]:
    responses: dict[str, Any] = {str(status): _answer(answer, refs) for status, answer in operation.answers.items()}
    problem = {MEDIA_TYPE: {"schema": refs[ProblemDocument]}}
    for status in sorted({400, 403, *operation.problems}):
        if str(status) not in responses:
            responses[str(status)] = {"description": _STATUS_TEXT[status], "content": problem}
    responses["default"] = {"description": "Any other refusal.", "content": problem}
    return responses


def _answer(answer: Answer, refs: Refs) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answer.description}
    if answer.content:
        described["content"] = {
            media: {"schema": refs[content] if isinstance(content, type) else dict(content)}
            for media, content in answer.content.items()
        }
    if answer.headers:
        described["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in answer.headers.items()
        }
    return described
