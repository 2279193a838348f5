"""Answers of etcd, whole and damaged, without an etcd."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.cluster import etcd_wire as wire
from hot_tier.cluster.etcd_wire import EtcdError, Garbled, Verdict
from hot_tier.cluster.store import Event, Revision

READERS = [
    wire.read_revision,
    wire.read_transaction,
    wire.read_lease,
    wire.read_kept_alive,
    lambda document: wire.read_page("/t/", document),
    lambda document: wire.read_watch("/t/", document),
]

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8) | st.floats(allow_nan=False)
names = st.sampled_from(
    [
        *("header", "revision", "kvs", "key", "value", "mod_revision", "events", "kv", "type", "ID", "TTL", "error"),
        *("code", "result", "succeeded", "canceled", "compact_revision", "fragment", "grpc_code", "message"),
    ]
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5), max_leaves=20
)


@given(st.binary(max_size=64) | documents.map(orjson.dumps))
def test_any_bytes_are_an_answer_or_garbled(data: bytes) -> None:
    try:
        document = wire.parse(data)
    except (Garbled, EtcdError):
        return
    for read in READERS:
        try:
            read(document)
        except Garbled:
            pass


@pytest.mark.parametrize(
    ("code", "message", "verdict"),
    [
        (5, "etcdserver: requested lease not found", Verdict.LEASE_GONE),
        (11, "etcdserver: mvcc: required revision has been compacted", Verdict.COMPACTED),
        (16, "etcdserver: invalid auth token", Verdict.TOKEN_EXPIRED),
        (3, "etcdserver: revision in header is old", Verdict.TOKEN_EXPIRED),
        (3, "etcdserver: authentication failed, invalid user ID or password", Verdict.REFUSED),
        (3, "etcdserver: request is too large", Verdict.REFUSED),
        (7, "etcdserver: permission denied", Verdict.REFUSED),
        (8, "etcdserver: mvcc: database space exceeded", Verdict.REFUSED),
        (8, "etcdserver: too many requests", Verdict.BUSY),
        (14, "etcdserver: request timed out, possibly due to previous leader failure", Verdict.LOST),
        (14, "etcdserver: leader changed", Verdict.LOST),
        (14, "etcdserver: no leader", Verdict.LOST),
        (14, "etcdserver: server stopped", Verdict.LOST),
        (4, "context deadline exceeded", Verdict.LOST),
        (2, "anything new", Verdict.LOST),
    ],
)
def test_only_what_surely_did_not_happen_is_called_so(code: int, message: str, verdict: Verdict) -> None:
    assert EtcdError(code, message).verdict is verdict


@pytest.mark.parametrize(
    "document",
    [
        {"error": "etcdserver: no leader", "message": "etcdserver: no leader", "code": 14},
        {"error": {"grpc_code": 14, "http_code": 503, "message": "etcdserver: no leader"}},
    ],
    ids=["an answer", "in a stream"],
)
def test_both_shapes_of_an_error(document: dict[str, Any]) -> None:
    with pytest.raises(EtcdError, match="no leader") as caught:
        wire.parse(orjson.dumps(document))
    assert caught.value.code == 14


@pytest.mark.parametrize("events", [[{"kv": []}], [[]], [{}], "ab", 7, [{"kv": {"key": "?", "mod_revision": "1"}}]])
def test_events_of_another_shape_are_garbled(events: Any) -> None:
    with pytest.raises(Garbled):
        wire.read_watch("/t/", {"events": events})


def test_events_are_grouped_by_transaction() -> None:
    events = [Event("a", b"", Revision(1)), Event("b", None, Revision(1)), Event("a", b"", Revision(3))]
    assert list(wire.by_transaction(events)) == [tuple(events[:2]), tuple(events[2:])]
    assert list(wire.by_transaction([])) == []
