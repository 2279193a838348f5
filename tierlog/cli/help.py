"""Help in the words of people who use the command: no Python types, and ranges as one would say them."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

F = TypeVar("F", bound=Callable[..., Any])

HELP_FLAGS = ["-h", "--help"]

_TYPE = re.compile(r" <([^<>]+)>$")
_BETWEEN = re.compile(r"(\d+)<=x<=(\d+)")
_AT_LEAST = re.compile(r"x>=(\d+)")


class Command(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments, options = [], []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                name, text = record
                if parameter.param_type_name == "argument":
                    arguments.append((name.partition(" ")[0], _said(text)))
                else:
                    options.append((_TYPE.sub(_shown, name), _said(text)))
        for title, records in (("Arguments", arguments), ("Options", options)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _shown(found: re.Match[str]) -> str:
    """Of what typer shows in angle brackets, words to choose from are worth it."""
    return f" {found[1]}" if "|" in found[1] else ""


def _said(text: str) -> str:
    return _AT_LEAST.sub(r"at least \1", _BETWEEN.sub(r"\1 to \2", text))


class Commands(typer.Typer):
    """A group of commands whose help is plain."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[F], F]:
        more.setdefault("cls", Command)
        return super().command(name, **more)
