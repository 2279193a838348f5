"""What an answered request tells the audit: which things it named, and which of them were refused.

Only names and error codes are looked at: never records, never values of settings, never credentials. All error codes of
an answer are looked at, in slices if it is long; of the names only the first `MOST_LOOKED_AT`.
"""

from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

from gateway.audit.audit import Audit, AuditFull
from gateway.audit.events import MOST_RESOURCES, SUCCESS, Resource, Result, cut
from gateway.audit.kinds import KAFKA
from gateway.audit.trail import Call, Counted, Trail
from gateway.coordinators.errors import CoordinatorNotAvailable
from gateway.kafka.apis import Route
from gateway.kafka.error_response import ERROR_CODES
from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import CloseConnection
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.schema import NO_ID, wire_fields
from gateway.listener import Listener
from gateway.principal import Principal, anonymous
from hot_tier.ids import TopicId

MOST_LOOKED_AT: Final = 1_000

REFUSED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Codes that refuse what the sender may not do."""
UNANSWERED: Final = Result(
    "failed", "UNANSWERED", "the client did not get an answer: it asked for none, or it was gone"
)
CLOSED: Final = Result("failed", "CLOSED", "the connection was closed instead of an answer")

CONFIG_RESOURCES: Final[Mapping[int, str]] = {2: "topic", 4: "broker", 8: "broker", 16: "client-metrics", 32: "group"}
ACL_RESOURCES: Final[Mapping[int, str]] = {2: "topic", 3: "group", 4: "cluster", 5: "transactional-id", 7: "user"}


CODE_NAMES: Final = {int(code): code.name for code in ErrorCode}
TURNED_AWAY: Final = frozenset({"KAFKA_STORAGE_ERROR", "COORDINATOR_NOT_AVAILABLE"})
NOT_TAKEN: Final = Result("refused", detail="no rule fits the certificate's subject")


HOT: Final = frozenset({"produce", "consume"})


class Named(NamedTuple):
    """Where a message names things: a path through its fields, and what they are."""

    path: str
    type: str
    asked: bool = False
    """In the request; else in the answer, where each has its error."""


def _asked(path: str, type_: str) -> Named:
    return Named(path, type_, True)


GROUP: Final = _asked("group_id", "group")
NAMES: Final[Mapping[ApiKey, tuple[Named, ...]]] = {
    ApiKey.PRODUCE: (Named("responses.name", "topic"),),
    ApiKey.FETCH: (Named("responses.topic", "topic"),),
    ApiKey.LIST_OFFSETS: (Named("topics.name", "topic"),),
    ApiKey.METADATA: (Named("topics.name", "topic"),),
    ApiKey.OFFSET_COMMIT: (GROUP, Named("topics.name", "topic")),
    ApiKey.OFFSET_FETCH: (GROUP, Named("groups.group_id", "group")),
    ApiKey.FIND_COORDINATOR: (_asked("key", "group"), Named("coordinators.key", "group")),
    ApiKey.JOIN_GROUP: (GROUP,),
    ApiKey.HEARTBEAT: (GROUP,),
    ApiKey.LEAVE_GROUP: (GROUP,),
    ApiKey.SYNC_GROUP: (GROUP,),
    ApiKey.DESCRIBE_GROUPS: (Named("groups.group_id", "group"),),
    ApiKey.LIST_GROUPS: (),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: (Named("topics.name", "topic"), _asked("topics.configs.name", "config")),
    ApiKey.DELETE_TOPICS: (Named("responses.name", "topic"),),
    ApiKey.DELETE_RECORDS: (Named("topics.name", "topic"),),
    ApiKey.INIT_PRODUCER_ID: (_asked("transactional_id", "transactional-id"),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Named("topics.topic", "topic"),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _asked("v3_and_below_transactional_id", "transactional-id"),
        _asked("transactions.transactional_id", "transactional-id"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_asked("transactional_id", "transactional-id"), GROUP),
    ApiKey.END_TXN: (_asked("transactional_id", "transactional-id"),),
    ApiKey.WRITE_TXN_MARKERS: (Named("markers.topics.name", "topic"),),
    ApiKey.TXN_OFFSET_COMMIT: (
        _asked("transactional_id", "transactional-id"),
        GROUP,
        Named("topics.name", "topic"),
    ),
    ApiKey.DESCRIBE_ACLS: (_asked("resource_name_filter", "acl"), _asked("principal_filter", "user")),
    ApiKey.CREATE_ACLS: (_asked("creations.resource_name", "acl"), _asked("creations.principal", "user")),
    ApiKey.DELETE_ACLS: (_asked("filters.resource_name_filter", "acl"), _asked("filters.principal_filter", "user")),
    ApiKey.DESCRIBE_CONFIGS: (Named("results.resource_name", "config"),),
    ApiKey.ALTER_CONFIGS: (Named("responses.resource_name", "config"), _asked("resources.configs.name", "config")),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (Named("results.topic_name", "topic"),),
    ApiKey.DESCRIBE_LOG_DIRS: (_asked("topics.topic", "topic"),),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_PARTITIONS: (Named("results.name", "topic"),),
    ApiKey.DELETE_GROUPS: (Named("results.group_id", "group"),),
    ApiKey.ELECT_LEADERS: (Named("replica_election_results.topic", "topic"),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Named("responses.resource_name", "config"),
        _asked("resources.configs.name", "config"),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Named("responses.name", "topic"),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_asked("topics.name", "topic"),),
    ApiKey.OFFSET_DELETE: (GROUP, Named("topics.name", "topic")),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_asked("components.match", "quota"),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_asked("entries.entity.entity_name", "quota"),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Named("results.user", "user"),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (Named("results.user", "user"),),
    ApiKey.DESCRIBE_QUORUM: (Named("topics.topic_name", "topic"),),
    ApiKey.UPDATE_FEATURES: (Named("results.feature", "feature"),),
    ApiKey.DESCRIBE_CLUSTER: (),
    ApiKey.DESCRIBE_PRODUCERS: (Named("topics.name", "topic"),),
    ApiKey.UNREGISTER_BROKER: (_asked("broker_id", "broker"),),
    ApiKey.DESCRIBE_TRANSACTIONS: (Named("transaction_states.transactional_id", "transactional-id"),),
    ApiKey.LIST_TRANSACTIONS: (),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (GROUP,),
    ApiKey.LIST_CONFIG_RESOURCES: (),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (Named("topics.name", "topic"),),
}


class Codes(NamedTuple):
    """Where an answer has error codes."""

    own: str
    """The field of its own code; empty if it has none."""
    inside: tuple[tuple[str, "Codes"], ...]


_known: dict[type[Any], Codes] = {}


def codes_of(cls: type[Any]) -> Codes:
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = _find_codes(cls)
    return found


def _find_codes(cls: type[Any]) -> Codes:
    fields = wire_fields(cls)
    inside = [(name, codes_of(place.kind)) for name, place in fields if place.array and not isinstance(place.kind, str)]
    own = next((name for name, _ in fields if name in ERROR_CODES), "")
    return Codes(own, tuple((name, codes) for name, codes in inside if codes.own or codes.inside))


def follow(audit: Audit, principal: Principal | None, listener: Listener, peer: Sequence[Any]) -> Trail:
    """Returns the trail of a new connection, and notes who came in by a certificate, or was not let in with one."""
    trail = audit.trail(principal or anonymous(listener.name, str(peer[0])), int(peer[1]))
    if principal is None:
        trail.login("kafka", "certificate", NOT_TAKEN)
    elif principal.kind == "certificate":
        trail.is_peer = bool(listener.peers) and listener.is_peer(principal)
        trail.login("kafka", "certificate", SUCCESS)
    return trail


def admit(trail: Trail, route: Route, request: Any) -> None:
    """Raises for a request that is not done while the audit cannot be written."""
    if not trail.audit.refusing:
        return
    act = KAFKA[route.api_key.name]
    try:
        trail.audit.admit(act)
    except AuditFull as full:
        assert act is not None
        if act.kind == "authenticate" or getattr(request, "acks", None) == 0:
            raise CloseConnection from None  # the client tries again with a new connection; a failed login is final
        if act.kind == "group":
            raise CoordinatorNotAvailable(full.what, hint=full.hint) from None
        raise


def note_answer(trail: Trail, route: Route, request: Any, response: Any) -> None:
    """Notes an answer that is short enough to be looked at in one step."""
    call = _call(route)
    if call is None:
        return
    found: dict[int, None] = {}
    _look(codes_of(route.response), response, found)
    kind = call.act.kind
    if found or kind not in HOT:
        _note(trail, route, call, request, response, found)
        return
    if not trail.audit.wants(kind, trail.principal.name, SUCCESS):
        return
    # Most of them are about one topic, again and again.
    topic = _only_topic(response)
    if not trail.again((route, topic)):
        names = _note(trail, route, call, request, response, found)
        if topic is not None and len(names) == 1:
            trail.remember((route, topic), Counted(call, names[0], SUCCESS, 0))


def note_answer_steps(trail: Trail, route: Route, request: Any, response: Any) -> Generator[None, None, None]:
    """Does the same for a long answer, step by step."""
    call = _call(route)
    if call is None:
        return
    found: dict[int, None] = {}
    codes = codes_of(route.response)
    _look(Codes(codes.own, ()), response, found)
    for name, inside in codes.inside:
        for element in getattr(response, name) or ():
            _look(inside, element, found)
            yield
    _note(trail, route, call, request, response, found)


def _only_topic(response: Any) -> Hashable:
    """Returns the topic of an answer of Produce or Fetch that has one; else None."""
    topics: Sequence[Any] = getattr(response, "responses", ())
    if len(topics) != 1:
        return None
    topic = topics[0]
    known: Hashable = getattr(topic, "name", None) or getattr(topic, "topic", None) or topic.topic_id
    return known


def _note(
    trail: Trail, route: Route, call: Call, request: Any, response: Any, codes: Iterable[int]
) -> Sequence[Resource]:
    """Returns the names that it noted."""
    result = result_of(codes, route.api_key)
    kind = call.act.kind
    if not trail.audit.wants(kind, trail.principal.name, result):
        return ()
    if trail.is_peer and kind == "consume":
        return ()  # a replica
    if trail.audit.refusing and result.code in TURNED_AWAY:
        return ()  # `admit` refused it, and there is no room to say so; it is counted
    if kind == "authenticate":
        # A login that has begun is noted by the login itself, which knows the user.
        if route.api_key is ApiKey.SASL_HANDSHAKE and result is not SUCCESS:
            trail.login("kafka", cut(request.mechanism), result, "")
        return ()
    names, more = _names(trail, route, request, response)
    trail.note(call, result, names, more)
    return names


def note_unanswered(trail: Trail, route: Route, request: Any, result: Result = UNANSWERED) -> None:
    """Notes a request whose answer nobody gets: the client asked for none, or it is gone."""
    call = _call(route)
    if call is None or call.act.kind == "authenticate":
        return
    names = []
    if route.api_key is ApiKey.PRODUCE and request is not None:
        topics = request.topic_data[:MOST_RESOURCES]
        names = [Resource("topic", _name_of(trail, each.name, each)) for each in topics]
    if request is not None and getattr(request, "acks", None) == 0 and result is UNANSWERED:
        result = SUCCESS
    trail.note(call, result, names)


@cache
def _call(route: Route) -> Call | None:
    act = KAFKA[route.api_key.name]
    return None if act is None else Call("kafka", route.api_key.name.title().replace("_", ""), str(route.version), act)


def _look(codes: Codes, answer: Any, found: dict[int, None]) -> None:
    """Collects the codes that are not 0, each once."""
    if codes.own and (code := getattr(answer, codes.own)):
        found[code] = None
    for name, inside in codes.inside:
        for element in getattr(answer, name) or ():
            _look(inside, element, found)


def result_of(codes: Iterable[int], api: ApiKey) -> Result:
    """Returns the worst of all: one thing that is refused makes the request a refused one."""
    worst = None
    for code in codes:
        if _refuses(code, api):
            return Result("refused", _code_name(code))
        worst = code if worst is None else worst
    return SUCCESS if worst is None else Result("failed", _code_name(worst))


def _refuses(code: int, api: ApiKey) -> bool:
    # Produce has this code for topics of the service.
    return code in REFUSED or (code == ErrorCode.INVALID_TOPIC and api is ApiKey.PRODUCE)


def _code_name(code: int) -> str:
    return CODE_NAMES.get(code) or str(code)


def _names(trail: Trail, route: Route, request: Any, response: Any) -> tuple[list[Resource], int]:
    """Returns some of the named things, those with an error first, and how many more there are."""
    found: dict[Resource, None] = {}
    unseen = 0
    for named in NAMES[route.api_key]:
        message = request if named.asked else response
        if message is None:
            continue
        first, *rest = named.path.split(".")
        for name, holder in islice(_at(message, named.path.split(".")), MOST_LOOKED_AT):
            if name in (None, "") and getattr(holder, "topic_id", NO_ID) == NO_ID:
                continue
            error = "" if named.asked else _error_of(holder)
            found[Resource(_type(named, holder), cut(_name_of(trail, name, holder)), error)] = None
        if rest:
            unseen += max(0, len(getattr(message, first) or ()) - MOST_LOOKED_AT)
    names = sorted(found, key=lambda each: not each.error)
    return names[:MOST_RESOURCES], max(0, len(names) - MOST_RESOURCES) + unseen


def _at(message: Any, path: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """Yields what is at the end of the path, and the struct that has it."""
    if len(path) == 1:
        yield getattr(message, path[0]), message
        return
    for element in getattr(message, path[0]) or ():
        yield from _at(element, path[1:])


def _name_of(trail: Trail, name: Any, holder: Any) -> str:
    if name not in (None, ""):
        return str(name)
    topic_id: TopicId = getattr(holder, "topic_id", NO_ID)
    return trail.audit.topic_name(topic_id) or str(topic_id)


def _type(named: Named, holder: Any) -> str:
    kind = getattr(holder, "resource_type", None)
    if kind is None:
        return named.type
    return (ACL_RESOURCES if named.type == "acl" else CONFIG_RESOURCES).get(kind, named.type)


def _error_of(holder: Any) -> str:
    found: dict[int, None] = {}
    _look(codes_of(type(holder)), holder, found)
    code = next((each for each in found if each in REFUSED), next(iter(found), 0))
    return _code_name(code) if code else ""
