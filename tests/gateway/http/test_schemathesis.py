"""/openapi.json against a running node: requests made from the description, answers held against it.

All of schemathesis's checks, over generated good and bad requests and over chains of them (make a topic, write to
it, read it). The seed is fixed, so that a failure is there again the next time.
"""

import asyncio
import sys

import pytest

from tests.gateway.http.conftest import Serve

SEED = "20250601"


@pytest.mark.timeout(240)
async def test_the_description_is_true(serve: Serve) -> None:
    served = await serve(max_wait_ms=20)
    await served.make_topic("orders", 2)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "schemathesis.cli",
        "run",
        f"http://{served.host}:{served.port}/openapi.json",
        "--checks=all",
        "--max-examples=15",
        f"--seed={SEED}",
        "--no-color",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
