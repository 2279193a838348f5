"""Users and their passwords over HTTP."""

from typing import Final

from aiohttp import web

from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import GROUP_NAME_SCHEMA, Parameter, group_name
from gateway.http.permissions import on_cluster
from gateway.http.problems import BEYOND_SCOPE, Problem
from gateway.http.schemas import NewPassword, User, Users
from hot_tier.cluster.acls import Operation as Permitted

USER: Final = Parameter("user", "path", "The user's name.", GROUP_NAME_SCHEMA, group_name, required=True)


async def list_users(call: Call) -> web.StreamResponse:
    users = call.api.node.image.users
    return json_response(Users(users=[User(name=name, mechanisms=sorted(users[name])) for name in sorted(users)]))


async def set_password(call: Call) -> web.StreamResponse:
    body: NewPassword = call.body
    if call.principal.scope is not None:
        raise Problem(BEYOND_SCOPE, "a key with a scope cannot set a password, which is a login without one")
    await call.api.node.users.set_password(call.values["user"], body.password)
    return web.Response(status=204)


async def delete_user(call: Call) -> web.StreamResponse:
    await call.api.node.users.delete(call.values["user"])
    return web.Response(status=204)


OPERATIONS: Final = (
    Operation(
        name="listUsers",
        method="GET",
        path="/api/v1/users",
        tag="users",
        summary="List users",
        handler=list_users,
        needs=(on_cluster(Permitted.DESCRIBE),),
        answers={200: Answer("The users, by name. Passwords are not told; they are not kept.", {JSON: Users})},
    ),
    Operation(
        name="setPassword",
        method="PUT",
        path="/api/v1/users/{user}/password",
        tag="users",
        summary="Make a user, or change its password",
        handler=set_password,
        needs=(on_cluster(Permitted.ALTER),),
        parameters=(USER,),
        body=Document(NewPassword),
        answers={204: Answer("The user has this password.")},
        problems=(409, 413, 415, 503),
    ),
    Operation(
        name="deleteUser",
        method="DELETE",
        path="/api/v1/users/{user}",
        tag="users",
        summary="Delete a user",
        handler=delete_user,
        needs=(on_cluster(Permitted.ALTER),),
        parameters=(USER,),
        answers={204: Answer("It is gone. Its connections stay until they end or log in again.")},
        problems=(404, 503),
    ),
)
