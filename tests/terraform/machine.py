"""A machine of a cluster without EC2: what Terraform would tell it, and the program that it runs.

The metadata service is a small server, AWS is moto's, and commands that change a machine only write themselves down.
"""

import base64
import gzip
import importlib.util
import json
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.terraform.iam import Asked
from tests.terraform.tool import SOURCE

ACCOUNT, REGION = "123456789012", "eu-west-1"


def cloud_config(user_data: str) -> dict[str, Any]:
    text = gzip.decompress(base64.b64decode(user_data)).decode()
    assert text.startswith("#cloud-config\n")
    config: dict[str, Any] = yaml.safe_load(text)
    return config


def written(config: Mapping[str, Any]) -> dict[str, str]:
    """The files that cloud-init writes, by path."""
    return {file["path"]: file["content"] for file in config["write_files"]}


@contextmanager
def metadata_service(answers: Mapping[str, str]) -> Iterator[str]:
    """Version 2 alone: without a token it answers 401."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer(200 if self.path == "/latest/api/token" else 404, "a-token")

        def do_GET(self) -> None:
            found = answers.get(self.path.removeprefix("/latest/meta-data/"))
            allowed = self.headers.get("X-aws-ec2-metadata-token") == "a-token"
            self._answer(401 if not allowed else 404 if found is None else 200, found or "")

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@dataclass
class Machine:
    """`node.py` with its surroundings; `asked` is what it wanted of AWS, `called` the commands it ran."""

    node: ModuleType
    folder: Path
    asked: list[Asked] = field(default_factory=list)

    @property
    def called(self) -> list[list[str]]:
        log = self.folder / "called"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def run(self, command: str, config: Mapping[str, Any]) -> None:
        self.node.CONFIG.write_text(json.dumps(config))
        assert self.node.main([command]) == 0


COMMAND = """#!{python}
import json, sys
with open({log!r}, "a") as file:
    file.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
{then}
"""


@contextmanager
def machine(folder: Path, aws: str, metadata: Mapping[str, str], commands: Mapping[str, str]) -> Iterator[Machine]:
    """`commands`: names, and what each does in Python beside writing itself down."""
    programs = folder / "bin"
    programs.mkdir()
    for name, then in commands.items():
        text = COMMAND.format(python=sys.executable, log=str(folder / "called"), name=name, then=then)
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    with metadata_service(metadata) as address, pytest.MonkeyPatch.context() as environment:
        environment.setenv("PATH", str(programs), prepend=":")
        environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", address)
        environment.setenv("AWS_ENDPOINT_URL", aws)
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        environment.delenv("AWS_REGION", raising=False)
        environment.setenv("TIERLOG_NODE_CONFIG", str(folder / "node.json"))
        environment.setenv("TIERLOG_NODE_POLL_S", "0.05")
        found = Machine(load(), folder)
        environment.setattr(found.node, "client", recording(found.node.client, found.asked))
        yield found


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("tierlog_node", SOURCE / "node" / "node.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def recording(client: Callable[[str], Any], asked: list[Asked]) -> Callable[[str], Any]:
    def recorded(service: str) -> Any:
        made = client(service)
        made.meta.events.register(
            "provide-client-params.*.*", lambda params, model, **_: asked.extend(requests(service, model.name, params))
        )
        made.meta.events.register("before-call.auto-scaling.CompleteLifecycleAction", answered)
        return made

    return recorded


def answered(**_: Any) -> tuple[Any, dict[str, Any]]:
    """Of the calls that are made, moto lacks this one alone."""
    return SimpleNamespace(status_code=200), {}


def requests(service: str, operation: str, params: Mapping[str, Any]) -> Iterator[Asked]:
    """What IAM is asked for; an operation that is not known here is an error."""
    mine = f"{REGION}:{ACCOUNT}"
    match service, operation:
        case "ssm", "GetParameter":
            yield Asked("ssm:GetParameter", f"arn:aws:ssm:{mine}:parameter{params['Name']}")
        case "secretsmanager", "GetSecretValue":
            yield Asked("secretsmanager:GetSecretValue", params["SecretId"])
        case "autoscaling", "CompleteLifecycleAction":
            group = f"autoScalingGroup:0-0:autoScalingGroupName/{params['AutoScalingGroupName']}"
            yield Asked("autoscaling:CompleteLifecycleAction", f"arn:aws:autoscaling:{mine}:{group}")
        case "cloudwatch", "PutMetricData":
            yield Asked("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": params["Namespace"]})
        case "ec2", "AttachVolume":
            tagged = {"aws:ResourceTag/tierlog:cluster": "tierlog"}
            yield Asked("ec2:AttachVolume", f"arn:aws:ec2:{mine}:volume/{params['VolumeId']}", tagged)
            yield Asked("ec2:AttachVolume", f"arn:aws:ec2:{mine}:instance/{params['InstanceId']}", tagged)
        case "s3", ("GetObject" | "PutObject") as name:
            yield Asked(f"s3:{name}", f"arn:aws:s3:::{params['Bucket']}/{params['Key']}")
        case _:
            raise AssertionError(f"{service} {operation} is not known here")
