"""What each parameter takes, and that its schema says the same."""

import jsonschema_rs
import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import parameters
from gateway.http.parameters import Parameter, parse_time, read_parameters
from gateway.http.problems import Problem

LIMIT = Parameter("limit", "query", "", parameters.integer_schema(1, 500), parameters.whole_number(1, 500), default=100)
WHO = Parameter("X-Who", "header", "", {"type": "string"}, str, required=True)


@pytest.mark.parametrize("text", ["", "-1", "+1", "0", "01", "1.0", "1e2", "1_0", "٣", "501", " 1", "9" * 5000])
def test_a_number_out_of_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number from 1 to 500"):
        LIMIT.parse(text)


@given(st.text(max_size=12))
def test_topic_names_agree_with_their_schema(text: str) -> None:
    valid = jsonschema_rs.validator_for(dict(parameters.TOPIC_NAME_SCHEMA)).is_valid(text)
    try:
        assert parameters.topic_name(text) == text
        assert valid
    except ValueError:
        assert not valid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1748779200000", 1748779200000),
        ("2025-06-01T12:00:00Z", 1748779200000),
        ("2025-06-01t12:00:00z", 1748779200000),
        ("2025-06-01T12:00:00", 1748779200000),
        ("2025-06-01T14:00:00+02:00", 1748779200000),
        ("2025-06-01T14:00:00 02:00", 1748779200000),
        ("2025-06-01T12:00:00.250Z", 1748779200250),
        ("2025-06-01", 1748736000000),
        ("2016-12-31T23:59:60Z", 1483228799000),
        ("1901-01-01T00:00:00Z", 0),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2025-13-01", "-1", "1.5", "2025-06-01T25:00:00Z", "9" * 40])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a time"):
        parse_time(text)


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    try:
        assert parse_time(text) >= 0
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("url", "headers", "detail"),
    [
        ("/?limit=5", {}, "the header parameter X-Who is missing"),
        ("/?limit=x", {"X-Who": "me"}, "the query parameter limit must be a whole number from 1 to 500, not 'x'"),
        ("/?limt=5", {"X-Who": "me"}, "the query parameter 'limt' is not known"),
        ("/?limit=5&limit=6", {"X-Who": "me"}, "a query parameter is given more than once"),
    ],
)
def test_refusals_name_the_parameter(url: str, headers: dict[str, str], detail: str) -> None:
    with pytest.raises(Problem) as refused:
        read_parameters(make_mocked_request("GET", url, headers), (LIMIT, WHO))
    assert refused.value.detail == detail
    assert refused.value.kind.status == 400


def test_defaults_and_values() -> None:
    read = read_parameters(make_mocked_request("GET", "/", {"X-Who": "me"}), (LIMIT, WHO))
    assert read == {"limit": 100, "X-Who": "me"}
