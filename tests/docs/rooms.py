"""The rooms of the code and which imports which, read from the imports, as a block of docs/ARCHITECTURE.md.

A room is a package or module directly inside `gateway`, `cold_tier` or `hot_tier`; each other package is one room.
`python -m tests.docs.rooms --write` renews the block; `test_rooms.py` checks that it is current.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN = "<!-- rooms: written by `python -m tests.docs.rooms --write` -->\n"
END = "<!-- end of rooms -->\n"

PACKAGES = ("tierlog", "gateway", "offloader", "spark", "cold_tier", "hot_tier")
WITH_ROOMS = ("gateway", "cold_tier", "hot_tier")

Arrows = Mapping[str, frozenset[str]]
"""The rooms that each room imports."""


def room_of(module: str) -> str:
    package, *inside = module.split(".")
    return f"{package}.{inside[0]}" if inside and package in WITH_ROOMS else package


@cache
def arrows() -> Arrows:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found: dict[str, set[str]] = {}
    for module in graph.modules - set(WITH_ROOMS):
        imported = graph.find_modules_directly_imported_by(module) - set(WITH_ROOMS)
        found.setdefault(room_of(module), set()).update(map(room_of, imported))
    return {room: frozenset(others - {room}) for room, others in found.items()}


def reached(rooms: Arrows, start: str) -> frozenset[str]:
    """Returns the rooms that `start` imports, at first or at second hand."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        new = rooms[ahead.pop()] - seen
        seen |= new
        ahead += new
    return frozenset(seen)


def cycles(rooms: Arrows) -> set[frozenset[str]]:
    """Returns the sets of rooms that import each other."""
    behind = {room: reached(rooms, room) for room in rooms}
    return {
        frozenset(other for other in behind[room] if room in behind[other]) for room in rooms if room in behind[room]
    }


def lines(rooms: Arrows) -> list[list[str]]:
    """Returns rooms in lines from top to bottom: a room imports only from lines below it, or within its cycle."""
    together = {room: next((cycle for cycle in cycles(rooms) if room in cycle), frozenset({room})) for room in rooms}
    height: dict[frozenset[str], int] = {}

    def height_of(cycle: frozenset[str]) -> int:
        if cycle not in height:
            below = {together[other] for room in cycle for other in rooms[room]} - {cycle}
            height[cycle] = 1 + max(map(height_of, below), default=-1)
        return height[cycle]

    by_height: dict[int, list[str]] = {}
    for room in sorted(rooms):
        by_height.setdefault(height_of(together[room]), []).append(room)
    return [by_height[each] for each in sorted(by_height, reverse=True)]


def inside(rooms: Arrows, package: str) -> Arrows:
    """Returns the rooms of one package with the arrows between them."""
    own = {room for room in rooms if room.split(".")[0] == package}
    return {room: rooms[room] & own for room in own}


def purpose(room: str) -> str:
    """Returns the first sentence that the room says of itself."""
    path = ROOT / room.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    opening = ast.get_docstring(ast.parse(source.read_text())) or ""
    return " ".join(opening.split("\n\n")[0].split()).partition(". ")[0].rstrip(".").replace("|", r"\|")


def drawing(rooms: Arrows) -> Iterator[str]:
    wide = max(map(len, PACKAGES))
    for package in PACKAGES:
        own = inside(rooms, package)
        joined = {room: cycle for cycle in cycles(own) for room in cycle}
        name = package
        for line in lines(own):
            together = sorted({tuple(sorted(joined.get(room, {room}))) for room in line})
            shown = (" ⇄ ".join(room.partition(".")[2] or "·" for room in each) for each in together)
            yield f"{name:<{wide}}   {'   '.join(shown)}"
            name = ""


def block(rooms: Arrows) -> str:
    """Returns the drawing and the table, as they stand in the page."""
    table = [
        f"| `{room}` | {purpose(room)} | {', '.join(f'`{other}`' for other in sorted(rooms[room]))} |"
        for package in PACKAGES
        for line in lines(inside(rooms, package))
        for room in line
    ]
    heading = ["| room | what it is | imports |", "|---|---|---|"]
    return "\n".join(["```", *drawing(rooms), "```", "", *heading, *table, ""])


def written(page: str) -> str:
    """Returns the block that the page has now."""
    return page.partition(BEGIN)[2].partition(END)[0].strip("\n") + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("say --write to renew the block in docs/ARCHITECTURE.md")
    text = PAGE.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no place for the rooms"
    PAGE.write_text(f"{before}{begin}\n{block(arrows())}\n{end}{after}")
