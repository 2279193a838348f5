"""axe-core finds nothing serious on any page. It is a tool of tests alone: `make test-tools` fetches it into .cache."""

from pathlib import Path

import pytest

from tests.console.actions import ACTIONS
from tests.console.browser import NARROW, WIDE, Browser
from tests.console.test_pages import PAGES
from tierlog.process import ServeProcess

AXE = Path(".cache/axe/axe.min.js")
CHECK = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations.map((each) =>
  [each.impact, each.id, each.nodes.slice(0, 3).map((node) => `${node.target}: ${node.failureSummary}`)])));
"""
SHOWN = [name for name in PAGES if name != "nowhere"]


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        pytest.skip(f"{AXE} is not here (make test-tools)")
    return AXE.read_text()


@pytest.mark.parametrize("page", SHOWN)
def test_page(browser: Browser, scene: ServeProcess, axe: str, page: str) -> None:
    place, expected = PAGES[page]
    for theme, size in (("light", WIDE), ("dark", NARROW)):
        browser.look(theme, size)
        browser.open(scene.url, place)
        browser.wait_for(expected)
        assert serious(browser, axe) == []


@pytest.mark.timeout(300)
def test_dialogs(browser: Browser, scene: ServeProcess, axe: str) -> None:
    for action in ACTIONS.values():
        if action.place.startswith("*"):
            continue
        browser.open(scene.url, action.place)
        browser.press(action.button, "main")
        browser.wait_for("The same as a command")
        assert serious(browser, axe) == []


def serious(browser: Browser, axe: str) -> list[object]:
    browser.settle()
    browser.run(axe)
    return [each for each in browser.run_later(CHECK) if each[0] in ("serious", "critical")]
