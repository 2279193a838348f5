"""Every difference between Apache Kafka and tierlog is argued for on a page for users, and every argument is needed."""

from pathlib import Path

import pytest

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java

from .argued import ARGUED, NOT_SERVED, OLDER, reason
from .run import Outcome, compare

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[3] / "docs" / "KAFKA_COMPATIBILITY.md"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    try:
        java()
        jars_dir()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    return compare(tmp_path_factory.mktemp("differential"))


def test_every_difference_is_argued(outcome: Outcome) -> None:
    assert outcome.questions > 2000
    missing = [one for one in outcome.found if reason(one) is None]
    assert not missing, "\n".join(map(str, missing[:40]))


def test_every_argument_is_needed_and_on_the_page(outcome: Outcome) -> None:
    used = {reason(one) for one in outcome.found}
    assert {argued.name for argued in ARGUED} == used
    page = PAGE.read_text()
    missing = [name for name in (*used, *NOT_SERVED, *OLDER) if f"**{name}**" not in page]
    assert not missing


def test_the_versions_served_are_kafkas_but_for_what_is_argued(outcome: Outcome) -> None:
    not_served = set().union(*NOT_SERVED.values())
    older = {key: version for versions in OLDER.values() for key, version in versions.items()}
    found_missing, found_older = set(), {}
    for key, (kafka, ours) in outcome.versions.items():
        assert kafka is not None, f"API {key} is not Kafka's"
        if ours is None:
            found_missing.add(key)
            continue
        assert ours.start == kafka.start, key
        if ours.stop != kafka.stop:
            found_older[key] = ours.stop - 1
    assert found_missing == not_served
    assert found_older == older
