"""The READMEs of modules and examples say what the `.tf` files say."""

import re

import pytest

from tests.terraform.tables import blocks, current
from tests.terraform.tool import EXAMPLES, FOLDERS, MODULES, SOURCE


@pytest.mark.parametrize("folder", FOLDERS)
def test_tables_are_current(folder: str) -> None:
    """`python -m tests.terraform.tables` writes them."""
    assert (SOURCE / folder / "README.md").read_text() == current(SOURCE / folder)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_variable_has_a_type(folder: str) -> None:
    untyped = [name for name, body in blocks(SOURCE / folder, "variable") if not re.search(r"^  type +=", body, re.M)]
    assert untyped == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_variable_is_used(folder: str) -> None:
    text = "\n".join(path.read_text() for path in (SOURCE / folder).glob("*.tf"))
    unused = [name for name, _ in blocks(SOURCE / folder, "variable") if not re.search(rf"\bvar\.{name}\b", text)]
    assert unused == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_same_provider_everywhere(folder: str) -> None:
    versions = (SOURCE / folder / "versions.tf").read_text()
    assert versions == (SOURCE / "modules" / "bucket" / "versions.tf").read_text()
    assert '">= 5.60, < 7"' in versions


def test_the_first_page_names_all_of_them() -> None:
    page = (SOURCE / "README.md").read_text()
    named = [f"modules/{name}" for name in MODULES] + [f"examples/{name}" for name in EXAMPLES]
    assert [name for name in named if f"]({name})" not in page] == []
