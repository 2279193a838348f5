"""Who may do what: the rules of cluster metadata, super users, and what a login was restricted to.

Decisions are remembered until a rule changes, so a request pays for one lookup. A changed rule holds for open
connections too, as soon as this broker's image shows it. Without authorization everything is allowed.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hot_tier.cluster.acls import CLUSTER_NAME, IMPLIED_BY, OPERATIONS_ON, USER, Operation, ResourceType
from hot_tier.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.principal import Principal
    from hot_tier.cluster.image import ClusterImage

MOST_REMEMBERED: Final = 20_000
LONGEST_NAME: Final = 255
"""Decisions about longer names are not remembered. Clients may ask about names of any length."""
SOMEWHERE: Final = None
"""Stands in the place of a name, for the question whether it is allowed for any name."""

_SCOPES: "Final[Mapping[Operation, frozenset[str]]]" = {
    operation: frozenset(each.name.lower() for each in implied) for operation, implied in IMPLIED_BY.items()
}
_EVERYTHING: Final = {kind: sum(1 << each for each in found) for kind, found in OPERATIONS_ON.items()}


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    enabled: bool = field(
        default=False,
        metadata={"doc": "Whether clients need permissions: then nothing is allowed without an access rule."},
    )
    super_users: tuple[str, ...] = field(
        default=(), metadata={"doc": "Users that may do everything, such as `User:ada`, or `ada` for short."}
    )

    def __post_init__(self) -> None:
        for each in self.super_users:
            if each.removeprefix(USER) in ("", "*"):
                raise SettingsError(
                    f"authorization.super_users cannot contain {each!r}", hint="write each name, such as User:ada"
                )


class Authorizer:
    def __init__(
        self,
        image: "ClusterImage",
        settings: AuthorizationSettings,
        peers: frozenset[str] = frozenset(),
        peer_listeners: frozenset[str] = frozenset(),
    ) -> None:
        """`peers` are the names in the certificates of the brokers, which may do everything at the listeners that take
        brokers. Another listener may know an authority that gives such a name to anybody."""
        self.enabled = settings.enabled
        self._image = image
        self._super_users = frozenset(each.removeprefix(USER) for each in settings.super_users)
        self._peers = peers
        self._peer_listeners = peer_listeners
        self._version = -1
        self._decided: dict[tuple[Principal, Operation, ResourceType, str | None], bool] = {}

    def guards(self, principal: "Principal") -> bool:
        """Returns whether there is anything that this principal may not do."""
        return self.enabled or principal.scope is not None

    def allows(
        self, principal: "Principal", operation: Operation, kind: ResourceType, name: str | None = CLUSTER_NAME
    ) -> bool:
        if not self.enabled:
            return principal.scope is None or not principal.scope.isdisjoint(_SCOPES[operation])
        if self._version != self._image.acls.version or len(self._decided) >= MOST_REMEMBERED:
            self._version = self._image.acls.version
            self._decided.clear()
        asked = principal, operation, kind, name
        decided = self._decided.get(asked)
        if decided is None:
            decided = self._decide(*asked)
            if name is None or len(name) <= LONGEST_NAME:
                self._decided[asked] = decided
        return decided

    def _decide(self, principal: "Principal", operation: Operation, kind: ResourceType, name: str | None) -> bool:
        if principal.scope is not None and principal.scope.isdisjoint(_SCOPES[operation]):
            return False
        if principal.name in self._super_users or self._is_broker(principal):
            return True
        # A socket for both kinds of addresses shows 10.0.0.7 as ::ffff:10.0.0.7, and a neighbour as fe80::1%eth0.
        host = principal.address.partition("%")[0]
        host = host.removeprefix("::ffff:") if "." in host else host
        who, rules = USER + principal.name, self._image.acls
        if name is SOMEWHERE:
            return rules.allow_somewhere(who, host, operation, kind)
        return rules.allow(who, host, operation, kind, name)

    def _is_broker(self, principal: "Principal") -> bool:
        at_its_place = principal.kind == "certificate" and principal.listener in self._peer_listeners
        return at_its_place and principal.name in self._peers

    def operations(self, principal: "Principal", kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Returns what is allowed with a resource, as a bit set of Kafka's operation codes."""
        if not self.guards(principal):
            return _EVERYTHING[kind]
        return sum(1 << each for each in OPERATIONS_ON[kind] if self.allows(principal, each, kind, name))

    def check_somebody_may_begin(self) -> None:
        """Raises SettingsError if nobody could ever add the first rule."""
        if self.enabled and not self._super_users and not len(self._image.acls):
            raise SettingsError(
                "authorization.enabled is set, and there is no super user and no access rule: nobody could do anything",
                where="authorization.super_users",
                hint="name a user that may do everything, such as User:ada",
            )
