"""A machine of a cluster without EC2: what Terraform would tell it, and the program that it runs.

The metadata service is a small server, AWS is moto's, and commands that change a machine only write themselves down.
"""

import base64
import gzip
import importlib.util
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import pytest
import yaml

from tests.terraform.iam import Asked
from tests.terraform.tool import SOURCE

ACCOUNT, REGION = "123456789012", "eu-west-1"
LAUNCHED = "aws_launch_template.broker"
SECRETS = {"TIERLOG_ETCD__USER": "etcd-user", "TIERLOG_ETCD__PASSWORD": 'a secret with = and "quotes"'}


def cloud_config(user_data: str) -> dict[str, Any]:
    text = gzip.decompress(base64.b64decode(user_data)).decode()
    assert text.startswith("#cloud-config\n")
    config: dict[str, Any] = yaml.safe_load(text)
    return config


def written(config: Mapping[str, Any]) -> dict[str, str]:
    """The files that cloud-init writes, by path."""
    return {file["path"]: file["content"] for file in config["write_files"]}


def client(aws: str, service: str) -> Any:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client(service, endpoint_url=aws, region_name=REGION, **keys)


def wheel(versions: bytes | None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tierlog/__init__.py", "")
        if versions is not None:
            archive.writestr("tierlog/constraints.txt", versions)
    return file.getvalue()


@dataclass
class Told:
    """A broker's machine after `terraform apply`: its role's policy, and what cloud-init is told."""

    policy: dict[str, Any]
    config: dict[str, Any]
    volumes: dict[str, str]

    @property
    def node(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(written(self.config)["/etc/tierlog/node.json"])
        return found


def at(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The same configuration with its files in a folder of the test's."""
    moved: dict[str, Any] = json.loads(json.dumps(config).replace("/run/tierlog", f"{folder}/run"))
    return moved


def environment(told: Told, config: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Of the broker, as systemd reads both files."""
    text = written(told.config)["/etc/tierlog/tierlog.env"].replace("/run/tierlog", f"{folder}/run")
    lines = (text + Path(config["environment"]).read_text()).splitlines()
    return {name: json.loads(value) for name, _, value in (line.partition("=") for line in lines)}


PUT = """#!{python}
import pathlib, sys
flags = dict(zip(sys.argv[3:], sys.argv[4:]))
value = pathlib.Path(flags["--value"].removeprefix("file://")).read_text()
pathlib.Path({folder!r}, flags["--name"].replace("/", "%")).write_text(value)
assert sys.argv[1:3] == ["ssm", "put-parameter"]
assert (flags["--type"], flags["--key-id"]) == ("SecureString", "alias/ours")
"""


def put_by(script: str, folder: Path, *arguments: str) -> dict[str, Path]:
    """Runs a script of a module, which keeps files in `folder` / kept. Returns what it puts into SSM, as files by the
    parameters' names."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    stored, programs = folder / "stored", folder / "programs"
    for each in (stored, programs):
        each.mkdir(parents=True)
    (programs / "aws").write_text(PUT.format(python=sys.executable, folder=str(stored)))
    (programs / "aws").chmod(0o700)
    command = [str(SOURCE / script), "--key-id", "alias/ours", str(folder / "kept"), *arguments]
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    return {path.name.replace("%", "/"): path for path in stored.iterdir()}


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


@contextmanager
def slots(told: Told, aws: str) -> Iterator[Callable[[int, Path], Machine]]:
    """Yields what makes the machine of a broker, by its number, in a folder of its own."""
    quiet = ("chown", "systemctl", "mkdir", "mount", "chmod", "mkfs.xfs", "python3", "pip")
    commands = {**dict.fromkeys(quiet, ""), "blkid": "sys.exit(2)"}
    ec2 = client(aws, "ec2")
    with ExitStack() as machines:

        def make(number: int, folder: Path) -> Machine:
            [instance] = ec2.run_instances(ImageId="ami-0123456789abcdef0", MinCount=1, MaxCount=1)["Instances"]
            metadata = {
                "instance-id": instance["InstanceId"],
                "local-ipv4": f"127.0.0.{number}",
                "placement/availability-zone": f"{REGION}{'abc'[number - 1]}",
                "placement/region": REGION,
                "tags/instance/tierlog:node-id": str(number),
                "tags/instance/tierlog:group": f"tierlog-{number}",
                "autoscaling/target-lifecycle-state": "Terminated",
            }
            folder.mkdir(exist_ok=True)
            made = machines.enter_context(machine(folder, aws, metadata, commands))
            (folder / "bin" / "tierlog").symlink_to(Path(sys.executable).with_name("tierlog"))
            return made

        yield make
    for volume in ec2.describe_volumes(VolumeIds=list(told.volumes.values()))["Volumes"]:
        for attachment in volume["Attachments"]:
            ec2.detach_volume(VolumeId=volume["VolumeId"], InstanceId=attachment["InstanceId"])


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
