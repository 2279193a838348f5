"""What all commands have in common: plain help texts, without Python types and with ranges in words; and `--profile`
where there is `--server`.
"""

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from tierlog.access import choose_profile

F = TypeVar("F", bound=Callable[..., Any])

HELP_FLAGS = ["-h", "--help"]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile", envvar="TIERLOG_PROFILE", metavar="NAME", help="A table of ~/.config/tierlog/config.toml."
    ),
]

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
    """Of what typer shows in angle brackets, keeps only lists of words to choose from."""
    return f" {found[1]}" if "|" in found[1] else ""


def _said(text: str) -> str:
    return _AT_LEAST.sub(r"at least \1", _BETWEEN.sub(r"\1 to \2", text))


class Commands(typer.Typer):
    """A group of commands whose help is plain, and of which those with `--server` have `--profile`."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[F], F]:
        more.setdefault("cls", Command)
        register = super().command(name, **more)

        def registered(function: F) -> F:
            register(_with_profile(function))
            return function

        return registered


def _with_profile(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    where = next((index for index, each in enumerate(parameters) if each.name == "server"), None)
    if where is None:
        return function

    @wraps(function)
    def call(*given: Any, profile: str | None = None, **named: Any) -> Any:
        choose_profile(profile)
        return function(*given, **named)

    own = inspect.Parameter("profile", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Profile)
    parameters.insert(where + 1, own)
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call
