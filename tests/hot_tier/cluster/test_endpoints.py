"""Where a broker is reached, as its registration says it: in today's form and in that of version 0.1."""

import json
from pathlib import Path

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.endpoints import (
    HTTP_PROTOCOLS,
    KAFKA_PROTOCOLS,
    Endpoint,
    first_for,
    simple_endpoints,
)
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import LeaseId, Revision
from hot_tier.errors import BrokerUnreachable, CorruptMetadata
from hot_tier.ids import NodeId

GOLDEN = Path(__file__).parents[2] / "golden" / "v0.1.0" / "metadata-running.json"
CLIENTS, PEERS = frozenset({"clients"}), frozenset({"peers"})
SEVERAL = {
    "kafka": Endpoint("outside", 9092, "plaintext", CLIENTS),
    "http": Endpoint("outside", 8080, "http", CLIENTS),
    "internal": Endpoint("inside", 9093, "plaintext", PEERS),
    "internal-http": Endpoint("fe80::1", 8081, "http", PEERS),
    "also": Endpoint("inside", 9094, "plaintext"),
}


def old_registrations() -> list[dict[str, object]]:
    items = json.loads(GOLDEN.read_text())
    return [json.loads(item["value"]) for item in items if "/brokers/" in item["key"]]


def broker(endpoints: object) -> BrokerInfo:
    return BrokerInfo(NodeId(3), endpoints, "r", LeaseId(7), "data")  # type: ignore[arg-type]


def test_what_is_written_is_read() -> None:
    info = broker(SEVERAL)
    found = model.decode_broker("brokers/3", model.encode(info), Revision(5))
    assert found == info
    assert list(found.endpoints) == list(SEVERAL), "the order says which is asked first"


def test_what_version_0_1_wrote_reads_as_two_listeners_for_everyone() -> None:
    registrations = old_registrations()
    assert len(registrations) == 3
    for old in registrations:
        found = model.decode_broker("brokers/1", json.dumps(old).encode(), Revision(5))
        assert found.endpoints == simple_endpoints(old["host"], old["port"], old["http_host"], old["http_port"])  # type: ignore[arg-type]
        again = json.loads(model.encode(found))
        assert {name: again[name] for name in old} == old


def test_version_0_1_reads_where_peers_are_served() -> None:
    written = json.loads(model.encode(broker(SEVERAL)))
    for old in old_registrations():
        assert {name: type(written[name]) for name in old} == {name: type(value) for name, value in old.items()}
    assert (written["host"], written["port"]) == ("inside", 9093)
    assert (written["http_host"], written["http_port"]) == ("fe80::1", 8081)


def test_peers_are_sent_to_the_first_listener_that_takes_them_in_their_protocol() -> None:
    assert broker(SEVERAL).for_peers(KAFKA_PROTOCOLS) is SEVERAL["internal"]
    assert str(broker(SEVERAL).for_peers(HTTP_PROTOCOLS)) == "[fe80::1]:8081"
    assert first_for(SEVERAL, "clients", KAFKA_PROTOCOLS) is SEVERAL["kafka"]


@pytest.mark.parametrize(
    "endpoints", [{}, {"kafka": SEVERAL["kafka"]}, {"later": Endpoint("inside", 9093, "quic", PEERS)}]
)
def test_a_broker_without_such_a_listener_cannot_be_asked(endpoints: dict[str, Endpoint]) -> None:
    with pytest.raises(BrokerUnreachable, match="broker 3 has no listener that takes peers and speaks plaintext"):
        broker(endpoints).for_peers(KAFKA_PROTOCOLS)


@pytest.mark.parametrize("endpoints", [3, None, [], {"kafka": 1}, {"kafka": {"host": "h"}}, {"kafka": None}])
def test_other_forms_are_refused(endpoints: object) -> None:
    data = {**json.loads(model.encode(broker(SEVERAL))), "endpoints": endpoints}
    with pytest.raises(CorruptMetadata, match="brokers/3"):
        model.decode_broker("brokers/3", json.dumps(data).encode(), Revision(5))
