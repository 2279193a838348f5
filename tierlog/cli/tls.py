"""`tierlog tls init`."""

from pathlib import Path
from typing import Annotated

import typer

from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.options import Json


def register(app: typer.Typer) -> None:
    tls = Commands(no_args_is_help=True, help="Certificates for development and small installations.")
    tls.command("init", help="Make an authority, a broker's certificate and an admin's, or renew what runs out.")(init)
    app.add_typer(tls, name="tls")


def init(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the files are.")] = Path("tls"),
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name or address of the broker besides this machine's; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    from tierlog.certificates import RENEW_BEFORE, Wanted, prepare_certificates, this_machine

    wanted = [Wanted("broker", this_machine(host or ())), Wanted("admin")]
    found = prepare_certificates(directory, wanted)
    if json:
        output.print_json(
            [
                {
                    "name": each.name,
                    "certificate": str(each.path),
                    "key": str(each.key),
                    "what": each.what,
                    "until": each.until.isoformat(),
                    "hosts": each.hosts,
                }
                for each in found
            ]
        )
    else:
        output.print_table(
            ("file", "", "until", "good for"),
            [(each.path, each.what, f"{each.until:%Y-%m-%d}", ", ".join(each.hosts)) for each in found],
        )
    authority = found[0]
    if authority.until - RENEW_BEFORE <= min(each.until for each in found):
        output.note(
            f"the authority ends on {authority.until:%Y-%m-%d} and is not renewed: before that, make another in a new "
            "directory, and have everybody trust both"
        )
