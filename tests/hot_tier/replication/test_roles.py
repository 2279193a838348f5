"""The table of the roles of a partition."""

import pytest

from hot_tier.replication import roles
from hot_tier.replication.roles import MOVES, OPEN, Event, Role, after
from tests.house.drawings import changes, drawn


def test_the_drawing_is_the_table() -> None:
    assert drawn(roles.__doc__) == changes(MOVES)


def test_every_role_is_reached_and_told_of() -> None:
    reached = {Role.ABSENT}
    for _ in Role:
        reached |= {following for role in reached for following in MOVES[role].values()}
    assert reached == set(Role) == set(MOVES)
    assert all(f"\n{role.name} " in (roles.__doc__ or "") for role in Role)


def test_a_role_ends_before_another_begins() -> None:
    leading, following = {Role.LEADING, Role.STRANDED, Role.FAILED}, {Role.FOLLOWING, Role.IN_DOUBT}
    for kind in (leading, following):
        assert {to for role in kind for to in MOVES[role].values()} == {*kind, Role.CLOSED} - {Role.IN_DOUBT}
    assert set(MOVES[Role.CLOSED].values()) == {Role.CLOSED}


def test_only_the_leader_or_the_bucket_ends_a_doubt() -> None:
    assert {event for event, to in MOVES[Role.IN_DOUBT].items() if to in OPEN} == {Event.TRUSTED}


def test_nothing_makes_a_failed_disk_good_again() -> None:
    assert set(MOVES[Role.FAILED].values()) == {Role.FAILED, Role.CLOSED}


def test_a_move_that_the_table_does_not_have_says_both_states() -> None:
    with pytest.raises(AssertionError, match="Role FOLLOWING cannot become CLOSED or FAILED or LEADING: HEARD"):
        after(Role.FOLLOWING, Event.HEARD)
    with pytest.raises(AssertionError, match="Role CLOSED cannot become FAILED or LEADING: LED"):
        after(Role.CLOSED, Event.LED)
