"""API keys as they are kept."""

import pytest

from hot_tier.cluster import api_keys
from hot_tier.errors import CorruptMetadata

KEPT = (
    b'{"hash":"d+Q5BDStCtU3M8wmLc8UKn6gkj3IVq1eT1GmZR13bC4=","created_ms":1700000000000,"expires_ms":1700000001000,'
    b'"scope":["describe","read"]}'
)
PLACE = "api-keys/%C3%A9ve%2F1/0123456789abcdef"


def test_what_0_2_0_wrote_is_read() -> None:
    found = api_keys.decode(PLACE, KEPT)
    assert (found.id, found.user, found.created_ms, found.expires_ms) == (
        "0123456789abcdef",
        "éve/1",
        1_700_000_000_000,
        1_700_000_001_000,
    )
    assert found.scope == {"read", "describe"}
    assert api_keys.encode(found) == KEPT
    assert api_keys.key_of(found.user, found.id) == PLACE


@pytest.mark.parametrize("scope", [None, frozenset({"read"})])
def test_a_key_is_known_by_its_secret_alone(scope: frozenset[str] | None) -> None:
    made, other = (api_keys.make_key("ada", 1, None, scope) for _ in range(2))
    split = api_keys.split_key(made.shown)
    assert split is not None and split[0] == made.kept.id
    assert made.kept.accepts(split[1]) and not other.kept.accepts(split[1])
    assert api_keys.decode(api_keys.key_of("ada", made.kept.id), api_keys.encode(made.kept)) == made.kept
    assert split[1].encode() not in api_keys.encode(made.kept)
    assert len(split[1]) == 43


@pytest.mark.parametrize("shown", ["", "tlk_", "tlk_x", "tlk_x_", "TLK_x_y", "x_y", "tlk_é_é"])
def test_what_cannot_be_a_key(shown: str) -> None:
    assert api_keys.split_key(shown) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        KEPT.replace(b"scope", b"s"),
        KEPT.replace(b'"d+', b'"!'),
        KEPT.replace(b"1700000001000", b'"x"'),
    ],
)
def test_a_damaged_value_is_none(data: bytes) -> None:
    with pytest.raises(CorruptMetadata):
        api_keys.decode(PLACE, data)
