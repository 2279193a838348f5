"""The tables of inputs and outputs in the READMEs of `terraform/`, made from the `.tf` files beside them.

`python -m tests.terraform.tables` writes them; a test checks that they are current.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.terraform.tool import FOLDERS, SOURCE

BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.M | re.S)
MARKED = re.compile(r"(<!-- tables: .*? -->\n).*?(<!-- end of tables -->)", re.S)


def blocks(folder: Path, kind: str) -> Iterator[tuple[str, str]]:
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*.tf")))
    return ((name, body) for what, name, body in BLOCK.findall(text) if what == kind)


def attribute(body: str, name: str) -> str | None:
    """As it is written; one of several lines, with brackets inside, on one line."""
    found = re.search(rf"^  {name} *= (.*?)(?=^  \w|\Z|^$)", body, re.M | re.S)
    lines = [line.strip() for line in found[1].splitlines()] if found else []
    return re.sub(r"([{(]), |, (?=[})])", r"\1 ", " ".join(", ".join(lines).split())) if lines else None


def description(body: str) -> str:
    text = attribute(body, "description")
    assert text is not None and text.startswith('"') and text.endswith('."'), f"a description is a sentence: {text}"
    return text[1:-1].replace('\\"', '"').replace("|", "\\|")


def tables(folder: Path) -> str:
    lines = ["| input | type | default | |", "|---|---|---|---|"]
    for name, body in blocks(folder, "variable"):
        kind, default = attribute(body, "type"), attribute(body, "default")
        lines.append(
            f"| `{name}` | `{kind}` | {'**needed**' if default is None else f'`{default}`'} | {description(body)} |"
        )
    lines += ["", "| output | |", "|---|---|"]
    lines += [f"| `{name}` | {description(body)} |" for name, body in blocks(folder, "output")]
    return "\n".join(lines) + "\n"


def current(folder: Path) -> str:
    """The README as it should be."""
    text, found = MARKED.subn(
        lambda mark: f"{mark[1]}\n{tables(folder)}\n{mark[2]}", (folder / "README.md").read_text()
    )
    assert found == 1, f"{folder}/README.md has a place for its tables"
    return text


if __name__ == "__main__":
    for name in FOLDERS:
        (SOURCE / name / "README.md").write_text(current(SOURCE / name))
