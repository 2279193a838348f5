"""API keys over HTTP: each acts as a user, and is shown once."""

from typing import Any, Final

from aiohttp import web

from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import Parameter
from gateway.http.permissions import on_cluster
from gateway.http.problems import BEYOND_SCOPE, Problem
from gateway.http.schemas import ApiKey, ApiKeys, CreatedApiKey, NewApiKey
from hot_tier.cluster import api_keys
from hot_tier.cluster.acls import Operation as Permitted

ID_SCHEMA: Final = {"type": "string", "pattern": "^[0-9a-f]{16}$"}


def _key_id(text: str) -> str:
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        raise ValueError("is not 16 hexadecimal digits")
    return text


KEY_ID: Final = Parameter("key", "path", "The key's id.", ID_SCHEMA, _key_id, required=True)


async def list_keys(call: Call) -> web.StreamResponse:
    known = sorted(call.api.node.image.api_keys.values(), key=lambda each: (each.user, each.created_ms, each.id))
    return json_response(ApiKeys(api_keys=[ApiKey(**_described(each)) for each in known]))


async def create_key(call: Call) -> web.StreamResponse:
    body: NewApiKey = call.body
    node, own = call.api.node, call.principal.scope
    scope = None if body.scope is None else frozenset(body.scope)
    if own is not None and (scope is None or not scope <= own):
        raise Problem(BEYOND_SCOPE, "a key cannot make one that may do more than itself")
    made = await node.users.create_key(body.user, node.clock(), body.expires_ms, scope)
    answer = json_response(CreatedApiKey(**_described(made.kept), key=made.shown), status=201)
    answer.headers["Cache-Control"] = "no-store"
    return answer


async def delete_key(call: Call) -> web.StreamResponse:
    await call.api.node.users.delete_key(call.values["key"])
    return web.Response(status=204)


def _described(key: api_keys.ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "user": key.user,
        "created_ms": key.created_ms,
        "expires_ms": key.expires_ms,
        "scope": None if key.scope is None else sorted(key.scope),
    }


OPERATIONS: Final = (
    Operation(
        name="listApiKeys",
        method="GET",
        path="/api/v1/api-keys",
        tag="users",
        summary="List API keys",
        handler=list_keys,
        needs=(on_cluster(Permitted.DESCRIBE),),
        answers={200: Answer("The keys, by user. Their secrets are not told; they are not kept.", {JSON: ApiKeys})},
    ),
    Operation(
        name="createApiKey",
        method="POST",
        path="/api/v1/api-keys",
        tag="users",
        summary="Make an API key for a user",
        description="The key acts as its user, and ends with it. `key` is told once, in this answer.",
        handler=create_key,
        needs=(on_cluster(Permitted.ALTER),),
        body=Document(NewApiKey),
        answers={201: Answer("The key.", {JSON: CreatedApiKey})},
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="deleteApiKey",
        method="DELETE",
        path="/api/v1/api-keys/{key}",
        tag="users",
        summary="Delete an API key",
        handler=delete_key,
        needs=(on_cluster(Permitted.ALTER),),
        parameters=(KEY_ID,),
        answers={204: Answer("It is gone, and refused from now on.")},
        problems=(404, 503),
    ),
)
