"""A dotted name of ours in a docstring or comment is a module, or something inside one."""

import re
import tokenize
from collections.abc import Iterator

from tests.docs.test_pages import SYMBOL, exists, is_key
from tests.house.test_sizes import PACKAGES, ROOT
from tierlog.settings import all_settings

QUOTED = re.compile(r"`([\w.]+)`")


def references() -> Iterator[tuple[str, str]]:
    """Yields (file, name) for each name between backticks."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            with tokenize.open(path) as source:
                for token in tokenize.generate_tokens(source.readline):
                    if token.type in (tokenize.COMMENT, tokenize.STRING):
                        for name in QUOTED.findall(token.string):
                            yield path.relative_to(ROOT).as_posix(), name


def test_every_name_of_ours_exists() -> None:
    keys = {setting.key for setting in all_settings().values()}
    ours = {
        (path, name)
        for path, name in references()
        if SYMBOL.fullmatch(name) and name not in keys and not name.endswith(".toml") and not is_key(name)
    }
    assert ours, "names are found at all"
    assert sorted((path, name) for path, name in ours if not exists(name)) == []
