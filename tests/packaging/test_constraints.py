"""What is installed is pinned, down to what our dependencies bring."""

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def test_every_dependency_is_pinned_and_no_registry_is_named() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert sorted(needed(asked, {""}) - pinned) == [], "run `make constraints`"


def test_the_page_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = (ROOT / "docs" / "INSTALL.md").read_text().partition("| extra | brings |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \| ", table, re.MULTILINE)) == set(extras)


def needed(requirements: Iterable[str], extras: set[str]) -> set[str]:
    """What these bring, transitive ones included, as it is installed here."""
    found: set[str] = set()
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in extras)
        if applies and name not in found:
            found |= {name} | brought_by(name, frozenset(requirement.extras or {""}))
    return found


@cache
def brought_by(name: str, extras: frozenset[str]) -> set[str]:
    return needed(metadata.requires(name) or (), set(extras))
