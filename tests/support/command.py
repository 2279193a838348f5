"""Runs `tierlog` as a user does: a process, its standard streams, its exit code."""

import json
import os
import sys
from dataclasses import dataclass
from subprocess import PIPE
from typing import Any

from tests.support.forks import Popen

TIMEOUT_S = 60


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def tierlog(*arguments: str, server: str | None = None, stdin: str | bytes = b"", code: int | None = 0) -> Ran:
    """`code` is what it has to end with; None for anything."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIERLOG_")}
    if server is not None:
        environment["TIERLOG_SERVER"] = server
    command = [sys.executable, "-m", "tierlog", *arguments]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment) as process:
        try:
            out, err = process.communicate(stdin.encode() if isinstance(stdin, str) else stdin, TIMEOUT_S)
        finally:
            process.kill()
    ran = Ran(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
    assert code is None or ran.code == code, f"tierlog {' '.join(arguments)} ended with {ran.code}:\n{ran.out}{ran.err}"
    return ran
