"""Workers of a broker that runs inside the tests' process, forked as `tests.support.forks` does, on any event loop.

uvloop starts processes by itself, without `subprocess.Popen`. So this stands in the place of
`asyncio.create_subprocess_exec`, and passes on what is no worker of ours.
"""

import asyncio
import subprocess
from asyncio.streams import FlowControlMixin
from typing import Any, Final

from tests.support import forks
from tests.support.waiting import until

START: Final = asyncio.create_subprocess_exec


class Worker:
    """What a broker uses of `asyncio.subprocess.Process`."""

    def __init__(
        self, process: "subprocess.Popen[Any]", stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader
    ) -> None:
        self._process = process
        self.pid: int = process.pid
        self.stdin = stdin
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        await until(lambda: self._process.poll() is not None)
        self.stdin.close()
        return self._process.wait()


async def create_subprocess_exec(*command: Any, **options: Any) -> Any:
    pipes = (options.get("stdin"), options.get("stdout"))
    if forks.module_and_arguments(command) is None or pipes != (subprocess.PIPE, subprocess.PIPE):
        return await START(*command, **options)
    process = forks.Popen(command, **options)
    loop = asyncio.get_running_loop()
    stdout = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), process.stdout)
    transport, protocol = await loop.connect_write_pipe(FlowControlMixin, process.stdin)
    return Worker(process, asyncio.StreamWriter(transport, protocol, None, loop), stdout)
