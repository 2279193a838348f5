"""The list of all that one can do in the console is whole, and each of it is done in a browser by a test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.console.actions import ACTIONS, QUESTIONS

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "gateway" / "http" / "console" / "static"
METHODS = {"post": "POST", "put": "PUT", "patch": "PATCH", "remove": "DELETE"}
PLACE = r"path\((?:[^()]|\([^()]*\))*\)"
CALL = re.compile(rf'(?<![.\w])(?:(post|put|patch|remove)\(|(?:send|lines)\("(\w+)", )({PLACE}|where\b)')
BUTTON = re.compile(r'\b(?:button|linkButton|withButton)\((?:\[icon\("\w+"\), )?(?:"([^"]+)"|`([^`]+)`)')
LABEL = re.compile(r'\bkind: "[^"]*", label: (?:"([^"]+)"|`([^`]+)`)')
ENDING = re.compile(r'\baction: (?:name \? )?(?:"([^"]+)"|`([^`]+)`)(?: : "([^"]+)")?')


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(STATIC.glob("*.js")):
        yield path.name, path.read_text()


def template(place: str) -> str:
    parts = re.findall(r'"([^"]*)"|([^,\s][^,]*)', place.removeprefix("path(").removesuffix(")"))
    return "/".join(fixed or "{}" for fixed, _ in parts)


def asked_by_the_console() -> set[str]:
    found = set()
    for name, text in sources():
        if name == "api.js":
            continue
        for call in CALL.finditer(text):
            method = METHODS.get(call[1], call[2])
            if method == "GET":
                continue
            place = call[3]
            if place == "where":
                *_, place = re.findall(rf"const where = ({PLACE})", text[: call.start()])
                assert place, name
            found.add(f"{method} {template(place)}")
    return found


def offered() -> list[set[str]]:
    """What can be pressed, by its text or its name, with {} for what is put in."""
    found = [{text} for _, source in sources() for match in ENDING.finditer(source) for text in match.groups() if text]
    for _, source in sources():
        for match in BUTTON.finditer(source):
            rest = re.split(r"[bB]utton\(", source[match.end() :], maxsplit=1)[0]
            label = LABEL.search(rest[:300])
            found.append({text for each in (match, label) if each is not None for text in each.groups() if text})
    return [{re.sub(r"\$\{(?:[^{}]|\{[^{}]*\})*\}", "{}", text) for text in texts} for texts in found]


def pressed() -> set[str]:
    """Texts that a test presses, with {} for what is put in."""
    found = {action.button for action in ACTIONS.values()}
    for path in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("press", "confirm")
                and node.args
            ):
                found.add(shown(node.args[0]))
    return found


def shown(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def done() -> set[str]:
    found: set[str] = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.does":
                found |= {ast.literal_eval(each) for each in node.args}
    return found


def test_the_list_has_every_request_of_the_console() -> None:
    assert asked_by_the_console() == {action.request for action in ACTIONS.values()} | QUESTIONS


def test_every_action_is_done_by_a_test() -> None:
    assert done() == ACTIONS.keys()


def test_every_button_is_pressed_by_a_test() -> None:
    known = pressed()

    def is_pressed(text: str) -> bool:
        pattern = re.compile(".+".join(map(re.escape, text.split("{}"))))
        return any(pattern.fullmatch(each) for each in known)

    assert [texts for texts in offered() if not any(map(is_pressed, texts))] == []
