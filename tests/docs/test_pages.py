"""The pages stay true: every path, symbol, link, command and flag they name exists."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from typer.main import get_command

from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.ids import LeaderEpoch, NodeId, Offset
from tierlog.cli.app import app
from tierlog.cli.spark import JOBS
from tierlog.settings import all_settings, find_setting

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PACKAGES = ("tierlog", "gateway", "offloader", "spark", "cold_tier", "hot_tier", "tests", "benchmarks")

CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|(?:src|href)=\"([^\"#]+)\"")
PATH = re.compile(
    rf"(?:{'|'.join(PACKAGES)}|docs|deploy|terraform|\.ci)/[\w./-]*|[A-Z][A-Za-z]+(?:\.md|file)|[\w-]+\.(?:toml|md)"
)
SYMBOL = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?:\(\))?")


def pages() -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES]


def inline_code(text: str) -> Iterator[str]:
    return (found[1] for found in CODE.finditer(FENCE.sub("", text)))


def exists(symbol: str) -> bool:
    """Whether a dotted name is a module, or something inside one."""
    parts = symbol.removesuffix("()").split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            annotations = getattr(found, "__annotations__", {})
            if not hasattr(found, name):
                return name in annotations
            found = getattr(found, name)
        return True
    return False


def is_key(name: str) -> bool:
    """`tierlog.dlq.failures`, `tierlog.topic_id`: names of record headers and Parquet metadata look like symbols."""
    package, module, *_ = name.split(".")
    return package == "tierlog" and name.islower() and not any(ROOT.glob(f"tierlog/{module}*"))


@pytest.mark.parametrize("page", pages())
def test_every_path_exists(page: Path) -> None:
    named = {code for code in inline_code(page.read_text()) if PATH.fullmatch(code)}
    assert [path for path in sorted(named) if not (ROOT / path).exists() and not (page.parent / path).exists()] == []


@pytest.mark.parametrize("page", pages())
def test_every_symbol_exists(page: Path) -> None:
    keys = {setting.key for setting in all_settings().values()}
    named = {code for code in inline_code(page.read_text()) if SYMBOL.fullmatch(code)} - keys
    meant = [name for name in sorted(named) if not name.endswith((".toml", ".py")) and not is_key(name)]
    assert [symbol for symbol in meant if not exists(symbol)] == []


@pytest.mark.parametrize("page", pages())
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = {found[1] or found[2] for found in LINK.finditer(FENCE.sub("", page.read_text()))}
    local = {target for target in targets if "://" not in target}
    assert [target for target in sorted(local) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", pages())
def test_every_command_and_flag_exists(page: Path) -> None:
    lines = [line for _, block in FENCE.findall(page.read_text()) for line in block.replace("\\\n", " ").splitlines()]
    for part in (part.strip() for line in lines for part in line.removeprefix("$ ").split("|")):
        if re.match(r"(\.venv/bin/)?tierlog [a-z]", part):
            check_command(shlex.split(part, comments=True)[1:], part)


def check_command(words: list[str], line: str) -> None:
    command = get_command(app)
    while hasattr(command, "commands"):
        assert words and words[0] in command.commands, f"no such command: {line}"
        command = command.commands[words.pop(0)]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    if command.name in JOBS:
        job = importlib.import_module(f"spark.jobs.{command.name}")
        flags |= {flag for action in job.parser()._actions for flag in action.option_strings}
    flags.add("--help")
    for word in words:
        flag = word.partition("=")[0]
        if word.startswith("--") and flag not in flags:
            assert command.name == "serve", f"no such flag {word}: {line}"
            find_setting(flag.removeprefix("--"), line)


def test_the_page_of_the_command_line_covers_every_command() -> None:
    text = (ROOT / "docs" / "CLI.md").read_text()

    def names(command: object, above: str) -> Iterator[str]:
        for name, inner in getattr(command, "commands", {}).items():
            yield from names(inner, f"{above} {name}") if hasattr(inner, "commands") else [f"{above} {name}"]

    assert [name for name in names(get_command(app), "tierlog") if f"`{name}" not in text] == []


def test_the_index_lists_every_page() -> None:
    index, decisions = ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md"
    listed = {
        (page.parent / found[1]).resolve()
        for page in (index, decisions)
        for found in LINK.finditer(page.read_text())
        if found[1]
    }
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in listed | {index}] == []


def test_the_page_of_cluster_metadata_covers_every_key_and_field() -> None:
    text = (ROOT / "docs" / "formats" / "cluster-metadata.md").read_text()
    prefixes = [value for name, value in vars(model).items() if name.endswith(("_PREFIX", "_KEY"))]
    assert [prefix for prefix in prefixes if f"`{prefix}" not in text] == []
    node = NodeId(1)
    values = (
        model.Topic("orders", UUID(int=7), 1, 1, {}, 0),
        model.initial_state([node]),
        model.BrokerInfo(node, simple_endpoints("host", 1)),
        model.NodeRecord("data"),
        model.DeletedTopic("orders", UUID(int=7), 1, 0),
        model.Archived(Offset(0), Offset(0), LeaderEpoch(0)),
    )
    fields = {field for value in values for field in model.decode_map("key", model.encode(value))}
    assert [field for field in sorted(fields) if f"`{field}`" not in text] == []
