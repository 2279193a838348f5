"""Access rules over HTTP: list, add, remove. A rule has the words of Kafka, in lower case."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, Any, Final, Literal, TypeVar

from aiohttp import web
from pydantic import Field

from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import Parameter
from gateway.http.permissions import on_cluster
from gateway.http.problems import AUTHORIZATION_OFF, BAD_PARAMETER, BEYOND_SCOPE, Problem
from gateway.http.schemas import Reply, Request
from hot_tier.cluster import api_keys
from hot_tier.cluster.acls import ANYTHING, MAX_NAME_BYTES, Filter, Pattern, Permission, ResourceType, Rule
from hot_tier.cluster.acls import Operation as Permitted

MAX_RULES: Final = 1_000
"""In one request."""
MATCH: Final = "match"

E = TypeVar("E", bound=IntEnum)
Text = Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)]


class NewRule(Request):
    resource_type: Literal["topic", "group", "cluster", "transactional_id", "user"]
    pattern: Literal["literal", "prefixed"] = Field(
        default="literal", description="`prefixed`: for all names that begin so."
    )
    name: Text = Field(description="`*` stands for all names; the cluster's name is `kafka-cluster`.")
    principal: Text = Field(description="`User:` and a name, or `User:*` for everybody.")
    host: Text = Field(default=ANYTHING, description="An address, or `*`.")
    operation: Literal[
        "all",
        "read",
        "write",
        "create",
        "delete",
        "alter",
        "describe",
        "cluster_action",
        "describe_configs",
        "alter_configs",
        "idempotent_write",
        "create_tokens",
        "describe_tokens",
    ]
    permission: Literal["allow", "deny"] = "allow"


class NewRules(Request):
    acls: list[NewRule] = Field(min_length=1, max_length=MAX_RULES)


class ShownRule(Reply):
    resource_type: str
    pattern: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str


class ShownRules(Reply):
    acls: list[ShownRule]


def _word(values: type[E]) -> Any:
    def parse(text: str) -> E:
        try:
            return values[text.upper()]
        except KeyError:
            words = ", ".join(each.name.lower() for each in values)
            raise ValueError(f"must be one of {words}, not {text!r}") from None

    return parse


def _filter(name: str, description: str, values: type[IntEnum] | None = None, *also: str) -> Parameter:
    if values is None:
        return Parameter(name, "query", description, {"type": "string", "maxLength": 1024}, str)
    parse = _word(values)
    schema = {"type": "string", "enum": [*(each.name.lower() for each in values), *also]}
    return Parameter(name, "query", description, schema, lambda text: text if text in also else parse(text))


FILTERS: Final = (
    _filter("resource_type", "Only rules for this kind.", ResourceType),
    _filter("pattern", "Only rules with this pattern; `match`: those that hold for `name`.", Pattern, MATCH),
    _filter("name", "Only rules with this name."),
    _filter("principal", "Only rules for this principal, such as `User:ada`."),
    _filter("host", "Only rules for this address."),
    _filter("operation", "Only rules for this operation.", Permitted),
    _filter("permission", "Only rules that allow, or that deny.", Permission),
)


async def list_acls(call: Call) -> web.StreamResponse:
    return json_response(ShownRules(acls=[_shown(rule) for rule in await _found(call)]))


async def add_acls(call: Call) -> web.StreamResponse:
    _check_on(call)
    body: NewRules = call.body
    rules = [_rule(each) for each in body.acls]
    _check_scope(call, rules)
    await call.api.node.acls.add(rules)
    return json_response(ShownRules(acls=[_shown(rule) for rule in rules]))


async def remove_acls(call: Call) -> web.StreamResponse:
    _check_on(call)
    if all(value is None for value in call.values.values()):
        raise Problem(BAD_PARAMETER, "no parameter says which rules to remove", hint="Name at least one.")
    found = await _found(call)
    _check_scope(call, found)
    await call.api.node.acls.remove(found)
    return json_response(ShownRules(acls=[_shown(rule) for rule in found]))


def _check_on(call: Call) -> None:
    if not call.api.node.authorizer.enabled:
        raise Problem(AUTHORIZATION_OFF, "authorization is off on this node")


def _check_scope(call: Call, rules: Iterable[Rule]) -> None:
    """A key with a scope changes only rules about what it may do: else it could let somebody else do the rest."""
    scope = call.principal.scope
    if scope is None:
        return
    for rule in rules:
        about = api_keys.OPERATIONS if rule.operation is Permitted.ALL else {rule.operation.name.lower()}
        if not about <= scope:
            raise Problem(BEYOND_SCOPE, f"the key's scope lacks {', '.join(sorted(about - scope))}")


async def _found(call: Call) -> list[Rule]:
    _check_on(call)
    values = dict(call.values)
    matching = values["pattern"] == MATCH
    wanted = Filter(**{**values, "pattern": None if matching else values["pattern"]}, matching=matching)
    node = call.api.node
    return sorted([rule async for rule in node.lane.turn().through(list(node.image.acls)) if wanted.meets(rule)])


def _rule(asked: NewRule) -> Rule:
    return Rule(
        ResourceType[asked.resource_type.upper()],
        Pattern[asked.pattern.upper()],
        asked.name,
        asked.principal,
        asked.host,
        Permitted[asked.operation.upper()],
        Permission[asked.permission.upper()],
    )


def _shown(rule: Rule) -> ShownRule:
    return ShownRule(
        resource_type=rule.resource_type.name.lower(),
        pattern=rule.pattern.name.lower(),
        name=rule.name,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation.name.lower(),
        permission=rule.permission.name.lower(),
    )


OPERATIONS: Final = (
    Operation(
        name="listAcls",
        method="GET",
        path="/api/v1/acls",
        tag="access rules",
        summary="List access rules",
        handler=list_acls,
        needs=(on_cluster(Permitted.DESCRIBE),),
        parameters=FILTERS,
        answers={200: Answer("The rules that the parameters describe; all without any.", {JSON: ShownRules})},
        problems=(409,),
    ),
    Operation(
        name="addAcls",
        method="POST",
        path="/api/v1/acls",
        tag="access rules",
        summary="Add access rules",
        handler=add_acls,
        needs=(on_cluster(Permitted.ALTER),),
        body=Document(NewRules),
        answers={200: Answer("They hold now; those that held before are not added again.", {JSON: ShownRules})},
        problems=(409, 413, 415, 503),
    ),
    Operation(
        name="removeAcls",
        method="DELETE",
        path="/api/v1/acls",
        tag="access rules",
        summary="Remove access rules",
        handler=remove_acls,
        needs=(on_cluster(Permitted.ALTER),),
        parameters=FILTERS,
        answers={200: Answer("The rules that are gone, also for connections that are open.", {JSON: ShownRules})},
        problems=(409, 503),
    ),
)
