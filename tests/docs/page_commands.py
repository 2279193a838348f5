"""Runs the command blocks of one page, in order, in the directory it is started in: `python -m … PAGE`.

A block is fenced as `sh` or `python`. One that needs what a test does not have is preceded by a line
`<!-- not run: why -->`. Of a shell block each command runs to its end and has to succeed; exported variables last.

Servers (`tierlog serve`, `tierlog cluster up`) stay until the next one is started, as with Ctrl-C in another terminal.
What they print to be exported is exported. `--follow` is interrupted once it has had time to read. A test gives the
page a network of its own, so that ports are as written.
"""

import fcntl
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n)?^```(?P<kind>sh|python)\n(?P<text>.*?)^```", re.M | re.S)
SERVER = re.compile(r"(\S*/)?tierlog (serve|cluster up)\b")
COMMAND_S = 300.0
READY_S = 120.0
FOLLOW_S = 3.0
STATE = ".exported"
CURL = "silent\nshow-error\nfail-with-body\n"
"""A curl that fails when the answer is an error."""


@dataclass(frozen=True)
class Block:
    line: int
    kind: str
    text: str
    why_not: str | None

    def commands(self) -> Iterator[str]:
        """Lines, joined where a backslash ends them; comments alone are left out."""
        for command in re.split(r"(?<!\\)\n", self.text):
            if command.strip() and not command.lstrip().startswith("#"):
                yield command


def blocks(page: str) -> list[Block]:
    return [
        Block(page[: found.start()].count("\n") + 1, found["kind"], found["text"], found["why"])
        for found in BLOCK.finditer(page)
    ]


class Failed(Exception):
    pass


class Reader:
    """Somebody who follows a page."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None

    def follow(self, block: Block) -> None:
        if block.kind == "python":
            self._run([sys.executable, "-c", block.text], "a Python block")
            return
        for command in block.commands():
            began = time.monotonic()
            if SERVER.match(command):
                self._serve(command)
            else:
                # The state is also written where the command fails or is interrupted.
                script = f"touch {STATE}; . ./{STATE}; {command}\ncode=$?; export -p > {STATE}; exit $code"
                self._run(["bash", "-c", script], command, interrupt="--follow" in command)
            print(f"{time.monotonic() - began:5.1f} s  {command}", flush=True)

    def _run(self, command: list[str], shown: str, *, interrupt: bool = False) -> None:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
        )
        try:
            out, err = process.communicate(timeout=FOLLOW_S if interrupt else COMMAND_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT if interrupt else signal.SIGKILL)
            out, err = process.communicate(timeout=COMMAND_S)
            if not interrupt:
                raise Failed(f"{shown}\ndid not end within {COMMAND_S:.0f} s:\n{(out + err).decode()}") from None
        ended_well = process.returncode in ((0, 130, -signal.SIGINT) if interrupt else (0,))
        if not ended_well or b"Traceback" in err:
            raise Failed(f"{shown}\nended with {process.returncode}:\n{(out + err).decode(errors='replace')}")

    def _serve(self, command: str) -> None:
        self.stop()
        with open("server.err", "ab") as errors:
            self._server = subprocess.Popen(
                ["bash", "-c", f"touch {STATE}; . ./{STATE}; exec {command}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._server.stdout is not None
        said, deadline = b"", time.monotonic() + READY_S
        while b" ready kafka=" not in said:
            readable, _, _ = select.select([self._server.stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._server.stdout.fileno(), 4096) if readable else b""
            if not part:
                raise Failed(f"{command}\nwas not ready:\n{said.decode()}{Path('server.err').read_text()[-3000:]}")
            said += part
        exports = [line for line in said.decode().splitlines() if line.startswith("export ")]
        if "cluster up" in command and not exports:
            raise Failed(f"{command}\ndoes not print what to export:\n{said.decode()}")
        with open(STATE, "a") as state:
            state.writelines(f"{line}\n" for line in exports)

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(signal.SIGTERM)
        try:
            server.communicate(timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            server.kill()
            raise Failed("a server ignored SIGTERM") from None
        if server.returncode:
            raise Failed(f"a server ended with {server.returncode}:\n{Path('server.err').read_text()[-3000:]}")


def loopback_up() -> None:
    """A new network has a loopback that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS


def main(page: str) -> int:
    loopback_up()
    # A shell starts what runs in the background with Ctrl-C ignored, and programs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Path(".curlrc").write_text(CURL)
    os.environ["CURL_HOME"] = os.getcwd()
    os.environ["XDG_STATE_HOME"] = os.getcwd()  # Where a closed broker leaves a note for the command line.
    reader = Reader()
    failed = ""
    try:
        for block in blocks(Path(page).read_text()):
            if block.why_not is None:
                failed = f"{page}, line {block.line}: "
                reader.follow(block)
        failed = ""
        reader.stop()
    except Failed as error:
        print(f"{failed}{error}", flush=True)
        try:
            reader.stop()
        except Failed as another:
            print(another)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
