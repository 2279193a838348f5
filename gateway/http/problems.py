"""Every refusal as `application/problem+json` (RFC 9457), and which status each cause has.

One rule gives the status, so that a client can act on it alone:

    400  the request is not one that /openapi.json describes
    404  it names something that does not exist
    409  it is well formed, but what is there now refuses it: an offset out of range, a topic that exists
    403  a web page of another site sent it, or it was sent to a name that is not ours
    413, 415, 406, 408, 405  as HTTP means them
    429  try again with less at once: this address has used up its share
    503  try again: nothing is wrong with the request
    507  the disk is full
    500  ours

Each problem has a `hint`: what to do next. An error brings its own, or `KINDS` has one for its class. The `type`
is a name to compare with, never to fetch.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson
from aiohttp import web

from cold_tier import errors as cold
from gateway.coordinators import errors as groups
from hot_tier import errors

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:tierlog:problem:"


class Kind(NamedTuple):
    status: int
    name: str
    title: str
    hint: str


class Problem(Exception):
    """A refusal decided at the HTTP border; whatever lies deeper raises a `TierlogError` instead."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        hint: str = "",
        extra: Mapping[str, Any] = MappingProxyType({}),
        headers: Mapping[str, str] = MappingProxyType({}),
        close: bool = False,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.hint = hint or kind.hint
        self.extra = extra
        self.headers = headers
        self.close = close


BAD_REQUEST: Final = Kind(400, "bad-request", "The request is malformed", "Compare the request with /openapi.json.")
BAD_PARAMETER: Final = Kind(
    400, "bad-parameter", "A parameter is missing or wrong", "Correct the parameter that `detail` names."
)
BAD_JSON: Final = Kind(400, "bad-json", "The body is not JSON", "Send one JSON document, encoded as UTF-8.")
BAD_DOCUMENT: Final = Kind(
    400, "bad-document", "The body does not have the expected shape", "Correct the members that `errors` names."
)
UNKNOWN_HOST: Final = Kind(
    403,
    "unknown-host",
    "The request was sent to a name that is not this broker's",
    "Use the broker's address, or add the name to the setting http.allowed_hosts.",
)
CROSS_SITE: Final = Kind(
    403,
    "cross-site",
    "A web page of another site may not do this",
    "Send the request from a program, or add the page's host name to the setting http.allowed_hosts.",
)
WRONG_LISTENER: Final = Kind(
    403,
    "wrong-listener",
    "This listener does not take such requests",
    "Use another listener of the broker; the setting listener.<name>.takes says what each of them takes.",
)
NOT_FOUND: Final = Kind(
    404, "not-found", "There is nothing at this address", "The addresses are listed in /openapi.json."
)
WRONG_METHOD: Final = Kind(405, "wrong-method", "The method does not apply here", "Use one of the methods in `Allow`.")
NOT_ACCEPTABLE: Final = Kind(
    406, "not-acceptable", "No representation matches Accept", "Accept one of the media types that `detail` lists."
)
BODY_TIMEOUT: Final = Kind(
    408,
    "body-timeout",
    "The body did not arrive in time",
    "Send the whole body at once, or split it into smaller requests.",
)
BODY_TOO_LARGE: Final = Kind(413, "body-too-large", "The body is too large", "Send less in one request.")
WRONG_MEDIA_TYPE: Final = Kind(
    415, "wrong-media-type", "The body has the wrong media type", "Send `Content-Type: application/json`."
)
BAD_EXPECTATION: Final = Kind(
    417, "bad-expectation", "The expectation cannot be met", "Leave `Expect` out, or send `Expect: 100-continue`."
)
OVERLOADED: Final = Kind(503, "overloaded", "Too much at once", "Try again after the time in `Retry-After`.")
TOO_MUCH: Final = Kind(
    429,
    "too-much-at-once",
    "One address asks for too much at once",
    "Read the answers that wait, close connections that are not needed, and try again after the time in `Retry-After`.",
)
MOVED_ON: Final = Kind(
    409, "offset-moved", "The committed offset is another one", "Read the committed offset again, and decide anew."
)
NO_ARCHIVE: Final = Kind(409, "no-archive", "This node has no archive", "Start it with `tierlog serve --bucket URL`.")
NOT_READY: Final = Kind(503, "not-ready", "The node cannot serve yet", "Try again shortly.")
STOPPING: Final = Kind(503, "stopping", "The node is stopping", "Try again on another node, or shortly.")
INTERNAL: Final = Kind(
    500, "internal-error", "Something failed inside", "Try again; if it stays, look into the node's log at this time."
)

_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "instance", "hint"})

RETRY: Final = "Try again; the same request may succeed."

KINDS: Final[Mapping[type[errors.TierlogError], Kind]] = MappingProxyType(
    {
        errors.CorruptBatch: Kind(400, "corrupt-batch", "The record batch is damaged", "Send it again."),
        errors.MalformedBatch: Kind(400, "malformed-batch", "The record batch is malformed", "Encode the batch anew."),
        errors.InvalidRecord: Kind(
            409,
            "invalid-record",
            "The topic does not take this record",
            "Give the record what the topic's settings ask for.",
        ),
        errors.BatchTooLarge: Kind(
            413,
            "message-too-large",
            "The message is too large",
            "Send a smaller one, or raise the topic's max.message.bytes.",
        ),
        errors.UnsupportedBatch: Kind(
            400, "unsupported-batch", "The record format is not served", "Use record batches v2."
        ),
        errors.OutOfOrderSequence: Kind(
            409, "out-of-order-sequence", "A batch is missing before this one", "Send it first."
        ),
        errors.ProducerFenced: Kind(
            409, "producer-fenced", "A newer instance of this producer is writing", "Stop the older instance."
        ),
        errors.OffsetOutOfRange: Kind(
            409,
            "offset-out-of-range",
            "The offset is not in the log",
            "Use an offset from `earliest_offset` to `latest_offset`, or the words earliest or latest.",
        ),
        errors.CorruptLog: Kind(
            500, "corrupt-log", "Stored records are damaged", "Read on behind the damage, or restore the partition."
        ),
        errors.UnknownTopic: Kind(
            404, "unknown-topic", "There is no such topic", "Create it with POST /api/v1/topics, or check its name."
        ),
        errors.UnknownTopicId: Kind(404, "unknown-topic", "There is no such topic", "Ask for the topic by its name."),
        errors.UnknownPartition: Kind(
            404, "unknown-partition", "There is no such partition", "GET /api/v1/topics/{topic} lists the partitions."
        ),
        errors.TopicExists: Kind(409, "topic-exists", "The topic exists already", "Use it, or choose another name."),
        errors.InvalidTopicName: Kind(
            409, "invalid-topic-name", "No topic of yours can have this name", "Choose another name."
        ),
        errors.InvalidPartitions: Kind(
            409,
            "invalid-partitions",
            "The topic cannot have so many partitions",
            "Partitions can be added, never removed.",
        ),
        errors.InvalidReplication: Kind(
            409,
            "invalid-replication",
            "The replicas cannot be placed",
            "Ask for at most as many replicas as there are brokers.",
        ),
        errors.InvalidConfig: Kind(
            409, "invalid-config", "These settings cannot be used together", "Correct the setting that `detail` names."
        ),
        errors.PolicyViolation: Kind(
            409, "policy-violation", "The topic's settings rule this out", "Change the setting that `detail` names."
        ),
        errors.NotLeader: Kind(503, "not-leader", "Another broker leads this partition", RETRY),
        errors.NoLeader: Kind(503, "no-leader", "Nobody leads this partition now", RETRY),
        errors.BrokerUnreachable: Kind(503, "broker-unreachable", "Another broker does not answer", RETRY),
        errors.OutcomeUnknown: Kind(
            503,
            "outcome-unknown",
            "It may have been done, or not",
            "Look before you try again: done again, it may be there twice.",
        ),
        errors.StaleBrokerEpoch: Kind(503, "leadership-changed", "The broker has registered anew", RETRY),
        errors.OffsetArchived: Kind(503, "leadership-changed", "The records are in the bucket alone", RETRY),
        errors.FencedLeaderEpoch: Kind(503, "leadership-changed", "The partition's leader has changed", RETRY),
        errors.UnknownLeaderEpoch: Kind(503, "leadership-changed", "The partition's leader has changed", RETRY),
        errors.OffsetNotAvailable: Kind(503, "leadership-changed", "The partition's leader has just changed", RETRY),
        errors.UnknownBroker: Kind(
            404, "unknown-broker", "There is no such broker", "GET /api/v1/cluster lists the brokers."
        ),
        errors.NoReassignment: Kind(
            409, "no-reassignment", "No reassignment is going on", "GET /api/v1/cluster/moves lists those that are."
        ),
        errors.ElectionNotNeeded: Kind(
            409, "election-not-needed", "The partition has its leader", "There is nothing to do."
        ),
        errors.NoEligibleLeader: Kind(
            503, "no-eligible-leader", "Nobody can lead this partition now", "Try again once more brokers are up."
        ),
        errors.NotEnoughReplicas: Kind(
            503, "not-enough-replicas", "Too few replicas are in sync", "Try again once more brokers are up."
        ),
        errors.DataLost: Kind(
            503,
            "data-lost",
            "The only copy of the partition is gone",
            "Have an operator bring the data directory back, or allow an unclean election.",
        ),
        errors.NodeIdTaken: Kind(503, "node-id-taken", "Two brokers have one number", "Give each its own node id."),
        errors.StorageFailure: Kind(
            503, "storage-failure", "The disk failed", "Have an operator look at the node's disk."
        ),
        errors.DiskFull: Kind(
            507, "disk-full", "The disk is full", "Free room on the data directory's disk, or shorten retention."
        ),
        errors.MetadataUnavailable: Kind(503, "metadata-unavailable", "Cluster metadata does not answer", RETRY),
        errors.MetadataConflict: Kind(503, "metadata-conflict", "Another change came first", RETRY),
        errors.MetadataCompacted: Kind(503, "metadata-unavailable", "Cluster metadata is being read again", RETRY),
        errors.LeaseExpired: Kind(503, "metadata-unavailable", "The node is registering anew", RETRY),
        errors.InvalidRequest: Kind(
            400, "bad-request", "The request contradicts itself", "Correct what `detail` names."
        ),
        cold.StoreUnavailable: Kind(503, "store-unavailable", "The archive's store does not answer", RETRY),
        cold.ArchiveNotLoaded: Kind(503, "archive-not-loaded", "The archive's manifest is being read", RETRY),
        cold.StoreDenied: Kind(
            503,
            "store-denied",
            "The archive's store refuses the node's credentials",
            "Have an operator look at the node's credentials and the bucket's policy.",
        ),
        cold.StoreError: Kind(
            503,
            "store-failure",
            "The archive's store refuses",
            "Have an operator look at the bucket.",
        ),
        cold.ManifestInvalid: Kind(
            503, "corrupt-archive", "The archive contradicts itself", "`tierlog archive verify` shows what is damaged."
        ),
        cold.CorruptObject: Kind(
            503, "corrupt-archive", "Archived records are damaged", "`tierlog archive verify` shows what is damaged."
        ),
        cold.ArchiveStopped: Kind(
            503,
            "archive-stopped",
            "The archive is not the one that the node knows",
            "`tierlog archive status` says why, and which command helps.",
        ),
        cold.ArchiveNotStopped: Kind(
            409, "archive-not-stopped", "There is nothing to repair", "`tierlog archive status` says what is wrong."
        ),
        cold.RecordsMissing: Kind(
            409,
            "records-missing",
            "Archived records are gone",
            "Put the objects back from a copy, or give the records up with `tierlog archive accept-loss`.",
        ),
        cold.ReplacementRefused: Kind(
            409, "replacement-refused", "Rewritten segments do not fit the archive", "Run the job again."
        ),
        cold.ManifestFenced: Kind(503, "leadership-changed", "The partition's leader has changed", RETRY),
        groups.CoordinatorLoading: Kind(503, "coordinator-loading", "Group offsets are being read back", RETRY),
        groups.CoordinatorNotAvailable: Kind(503, "coordinator-not-available", "No group coordinator", RETRY),
        groups.NotCoordinator: Kind(503, "not-coordinator", "Another broker coordinates this group", RETRY),
        groups.InvalidGroupId: Kind(400, "invalid-group", "This cannot be a group's name", "Choose another name."),
        groups.GroupNotFound: Kind(
            404, "unknown-group", "There is no such consumer group", "GET /api/v1/consumer-groups lists the groups."
        ),
        groups.GroupNotEmpty: Kind(
            409, "group-not-empty", "The group has members", "Stop its consumers first, or commit through them."
        ),
        groups.OffsetMetadataTooLarge: Kind(409, "metadata-too-large", "The metadata is too long", "Shorten it."),
        groups.GroupSubscribedToTopic: Kind(
            409, "group-subscribed", "A member of the group reads this topic", "Stop the group's consumers first."
        ),
        groups.RebalanceInProgress: Kind(503, "rebalance-in-progress", "The group is rebalancing", RETRY),
        groups.CoordinatorError: Kind(
            409,
            "group-refused",
            "The consumer group refuses this",
            "Stop the group's consumers first, or act through them.",
        ),
    }
)


def kind_of(error: errors.TierlogError) -> Kind:
    for each in type(error).__mro__:
        if (kind := KINDS.get(each)) is not None:
            return kind
    return INTERNAL


def as_problem(error: errors.TierlogError, extra: Mapping[str, Any] = MappingProxyType({})) -> Problem:
    detail = f"{error.where}: {error.what}" if error.where else error.what
    return Problem(kind_of(error), detail, hint=error.hint, extra=extra)


def document(problem: Problem, instance: str) -> dict[str, Any]:
    kind = problem.kind
    return {
        "type": TYPE_PREFIX + kind.name,
        "title": kind.title,
        "status": kind.status,
        # Both may quote the request, which need not be text: what is not becomes a question mark.
        "detail": problem.detail.encode(errors="replace").decode(),
        "instance": instance.encode(errors="replace").decode(),
        "hint": problem.hint,
        **problem.extra,
    }


def from_document(status: int, said: Any) -> Problem:
    """A refusal that another broker has made, in its words."""
    told = said if isinstance(said, dict) else {}
    name = str(told.get("type", "")).removeprefix(TYPE_PREFIX) or INTERNAL.name
    kind = Kind(status, name, str(told.get("title", INTERNAL.title)), str(told.get("hint", INTERNAL.hint)))
    extra = {member: value for member, value in told.items() if member not in _MEMBERS}
    return Problem(kind, str(told.get("detail", f"another broker answered {status}")), extra=extra)


def respond(problem: Problem, instance: str) -> web.Response:
    response = web.Response(
        status=problem.kind.status,
        body=orjson.dumps(document(problem, instance)),
        content_type=MEDIA_TYPE,
        headers=problem.headers,
    )
    if problem.kind.status in (429, 503) and "Retry-After" not in response.headers:
        response.headers["Retry-After"] = "1"
    if problem.close:
        response.force_close()
    return response
