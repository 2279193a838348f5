"""docs/ARCHITECTURE.md draws the rooms of the code as the imports are, and no two rooms import each other."""

from tests.docs import rooms


def test_the_page_shows_the_rooms_as_they_are() -> None:
    shown = rooms.written(rooms.PAGE.read_text())
    assert shown == rooms.block(rooms.arrows()), "renew it: python -m tests.docs.rooms --write"


def test_no_rooms_import_each_other() -> None:
    assert rooms.cycles(rooms.arrows()) == set()


def test_every_room_says_what_it_is() -> None:
    assert [room for room in rooms.arrows() if not rooms.purpose(room)] == []


ARROWS: rooms.Arrows = {
    "gateway.a": frozenset({"gateway.b", "hot_tier.x"}),
    "gateway.b": frozenset({"gateway.c"}),
    "gateway.c": frozenset({"gateway.b", "gateway.d"}),
    "gateway.d": frozenset(),
    "hot_tier.x": frozenset(),
}


def test_a_room_stands_above_what_it_imports() -> None:
    assert rooms.lines(rooms.inside(ARROWS, "gateway")) == [["gateway.a"], ["gateway.b", "gateway.c"], ["gateway.d"]]


def test_a_cycle_is_found() -> None:
    assert rooms.cycles(ARROWS) == {frozenset({"gateway.b", "gateway.c"})}


def test_the_room_of_a_module() -> None:
    assert rooms.room_of("gateway.kafka.handlers.fetch") == "gateway.kafka"
    assert rooms.room_of("gateway.node") == "gateway.node"
    assert rooms.room_of("offloader.plan") == "offloader"
