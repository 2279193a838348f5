"""Access rules as Kafka has them: what a rule is, its key in cluster metadata, and what rules together decide.

A rule allows or denies one operation, on one resource or on all whose names begin alike, to one user or to everybody,
from one address or from everywhere. Nothing is allowed without a rule, and a rule that denies wins over every rule that
allows. A rule that allows READ, WRITE, DELETE or ALTER also allows DESCRIBE, and ALTER_CONFIGS allows DESCRIBE_CONFIGS;
one that denies them denies nothing else.

Each rule has a key of its own that says all of it, so any number of brokers may add and remove rules at the same time:

    acls/<type>/<pattern>/<name>/<principal>/<host>/<operation>/<permission>
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from hot_tier.errors import InvalidRequest

PREFIX: Final = "acls/"
ANYTHING: Final = "*"
"""As a literal name, as a host, and as the user of `User:*`: all of them."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name that the resource CLUSTER has."""
USER: Final = "User:"
EVERYBODY: Final = USER + ANYTHING
MAX_NAME_BYTES: Final = 249


class ResourceType(IntEnum):
    """The numbers of these enumerations are Kafka's."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    USER = 7


class Pattern(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


_DESCRIBING: Final = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    each: frozenset(
        {
            each,
            Operation.ALL,
            *(_DESCRIBING if each is Operation.DESCRIBE else ()),
            *((Operation.ALTER_CONFIGS,) if each is Operation.DESCRIBE_CONFIGS else ()),
        }
    )
    for each in Operation
}
"""The operations of rules that allow an operation."""

OPERATIONS_ON: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""What can be done with each kind of resource."""


class Rule(NamedTuple):
    resource_type: ResourceType
    pattern: Pattern
    name: str
    principal: str
    """`User:` and a name, or `User:*`."""
    host: str
    """An address, or `*`."""
    operation: Operation
    permission: Permission

    def covers(self, name: str) -> bool:
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANYTHING)


def check_rule(rule: Rule) -> None:
    """Raises InvalidRequest if nothing could ever match the rule, or if it is too long to keep."""
    kind = rule.resource_type
    if kind is ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        raise InvalidRequest(f"the resource cluster has no name but {CLUSTER_NAME!r}, and not {rule.name!r}")
    if kind is ResourceType.CLUSTER and rule.pattern is not Pattern.LITERAL:
        raise InvalidRequest("the resource cluster has one name: a rule for it is literal")
    if not rule.principal.startswith(USER) or rule.principal == USER:
        raise InvalidRequest(
            f"{rule.principal!r} is no principal", hint="write `User:` and a name, or `User:*` for everybody"
        )
    if rule.operation is not Operation.ALL and rule.operation not in OPERATIONS_ON[kind]:
        raise InvalidRequest(
            f"{rule.operation.name.lower()} is no operation on a {kind.name.lower()}",
            hint=f"use all, {', '.join(each.name.lower() for each in OPERATIONS_ON[kind])}",
        )
    if rule.host != ANYTHING and rule.host != _usual_form(rule.host):
        raise InvalidRequest(
            f"a rule for the host {rule.host!r} would never match",
            hint="write an address in its usual form, such as 10.0.0.7 or 2001:db8::1, or * for all",
        )
    for what, text in (("resource's name", rule.name), ("principal", rule.principal)):
        if not text or len(text.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
            raise InvalidRequest(f"the {what} of a rule has 1 to {MAX_NAME_BYTES} bytes")
        if not text.isprintable():
            raise InvalidRequest(f"the {what} of a rule has characters that cannot be shown: {text!r}")


def _usual_form(host: str) -> str | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    # Senders are known by an IPv4 address in its own form, and without the interface that they came in by.
    return str(getattr(address, "ipv4_mapped", None) or address).partition("%")[0]


def acl_key(rule: Rule) -> str:
    texts = (quote(each, safe="") for each in (rule.name, rule.principal, rule.host))
    parts = (rule.resource_type.name, rule.pattern.name, *texts, rule.operation.name, rule.permission.name)
    return PREFIX + "/".join(parts)


def parse_acl_key(key: str) -> Rule:
    """Raises ValueError if it is no rule that this version knows."""
    try:
        kind, pattern, name, principal, host, operation, permission = key.removeprefix(PREFIX).split("/")
        return Rule(
            ResourceType[kind],
            Pattern[pattern],
            unquote(name),
            unquote(principal),
            unquote(host),
            Operation[operation],
            Permission[permission],
        )
    except KeyError as error:
        raise ValueError(f"unknown in an access rule: {error}") from None


class _Held:
    """The rules of one principal, or those of everybody."""

    __slots__ = ("at", "prefix_lengths", "rules")

    def __init__(self) -> None:
        self.rules: set[Rule] = set()
        self.at: dict[tuple[ResourceType, Pattern, str], set[Rule]] = {}
        self.prefix_lengths: dict[ResourceType, Counter[int]] = {each: Counter() for each in ResourceType}

    def covering(self, kind: ResourceType, name: str) -> Iterator[Rule]:
        at = self.at
        yield from at.get((kind, Pattern.LITERAL, name), ())
        if name != ANYTHING:
            yield from at.get((kind, Pattern.LITERAL, ANYTHING), ())
        for length in self.prefix_lengths[kind]:
            if length <= len(name):
                yield from at.get((kind, Pattern.PREFIXED, name[:length]), ())

    def add(self, rule: Rule) -> None:
        place = rule.resource_type, rule.pattern, rule.name
        if place not in self.at:
            self.at[place] = set()
            if rule.pattern is Pattern.PREFIXED:
                self.prefix_lengths[rule.resource_type][len(rule.name)] += 1
        self.at[place].add(rule)
        self.rules.add(rule)

    def remove(self, rule: Rule) -> None:
        place = rule.resource_type, rule.pattern, rule.name
        self.rules.remove(rule)
        self.at[place].remove(rule)
        if not self.at[place]:
            del self.at[place]
            if rule.pattern is Pattern.PREFIXED:
                lengths = self.prefix_lengths[rule.resource_type]
                lengths[len(rule.name)] -= 1
                if not lengths[len(rule.name)]:
                    del lengths[len(rule.name)]


class Rules:
    """All rules, found by whom and what they are about. `version` grows whenever they change."""

    def __init__(self) -> None:
        self.version = 0
        self._of: dict[str, _Held] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Rule]:
        return (rule for held in self._of.values() for rule in held.rules)

    def __contains__(self, rule: Rule) -> bool:
        held = self._of.get(rule.principal)
        return held is not None and rule in held.rules

    def add(self, rule: Rule) -> None:
        if rule not in self:
            self.version += 1
            self._count += 1
            self._of.setdefault(rule.principal, _Held()).add(rule)

    def remove(self, rule: Rule) -> None:
        if rule in self:
            self.version += 1
            self._count -= 1
            held = self._of[rule.principal]
            held.remove(rule)
            if not held.rules:
                del self._of[rule.principal]

    def allow(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Returns whether the rules allow this. `principal` is `User:` and a name."""
        implied = IMPLIED_BY[operation]
        allowed = False
        for held in self._about(principal):
            for rule in held.covering(kind, name):
                if rule.host not in (host, ANYTHING):
                    continue
                if rule.permission is Permission.DENY:
                    if rule.operation in (operation, Operation.ALL):
                        return False
                elif rule.operation in implied:
                    allowed = True
        return allowed

    def allow_somewhere(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Returns whether there is a name for which the rules allow this, as Kafka finds it: a literal or a prefix of a
        rule that allows it and that no rule which denies it covers."""
        denied: set[tuple[Pattern, str]] = set()
        allowed: set[tuple[Pattern, str]] = set()
        for held in self._about(principal):
            for rule in held.rules:
                if rule.resource_type is not kind or rule.host not in (host, ANYTHING):
                    continue
                if rule.permission is Permission.DENY and rule.operation in (operation, Operation.ALL):
                    denied.add((rule.pattern, rule.name))
                elif rule.permission is Permission.ALLOW and rule.operation in IMPLIED_BY[operation]:
                    allowed.add((rule.pattern, rule.name))
        if (Pattern.LITERAL, ANYTHING) in denied:
            return False
        if (Pattern.LITERAL, ANYTHING) in allowed:
            return True
        return any(
            (pattern is Pattern.PREFIXED or (pattern, name) not in denied)
            and not any((Pattern.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
            for pattern, name in allowed
        )

    def _about(self, principal: str) -> Iterator[_Held]:
        for name in (principal, EVERYBODY):
            held = self._of.get(name)
            if held is not None:
                yield held


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rules are meant; None stands for any value."""

    resource_type: ResourceType | None = None
    pattern: Pattern | None = None
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    matching: bool = False
    """With a name and no pattern: the rules that hold for this name, whatever their pattern."""

    def meets(self, rule: Rule) -> bool:
        return (
            self.resource_type in (None, rule.resource_type)
            and self.pattern in (None, rule.pattern)
            and (self.name in (None, rule.name) or (self.matching and rule.covers(str(self.name))))
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (None, rule.operation)
            and self.permission in (None, rule.permission)
        )
