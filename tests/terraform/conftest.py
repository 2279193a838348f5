"""Terraform is run on copies; where it cannot be run, the tests that need it are skipped with the reason."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.etcd import Tls
from tests.support.s3 import free_ports
from tests.terraform.machine import (
    ACCOUNT,
    LAUNCHED,
    REGION,
    SECRETS,
    Machine,
    Told,
    client,
    cloud_config,
    put_by,
    slots,
    wheel,
)
from tests.terraform.tool import Terraform, unavailable


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terraform]:
    if reason := unavailable():
        pytest.skip(reason)
    with Terraform(tmp_path_factory.mktemp("terraform")).with_provider() as used:
        yield used


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of moto's server: a stand-in for AWS's own services."""
    [port] = free_ports(1)
    log = tmp_path_factory.mktemp("moto") / "moto.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as knock:
                if knock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        endpoint = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(f"{endpoint}/moto-api/data.json", timeout=30).read()
        yield endpoint
    finally:
        process.terminate()
        process.wait(10)


MOTO = """
provider "aws" {
  region                      = "eu-west-1"
  access_key                  = "test"
  secret_key                  = "test"
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  max_retries                 = 2
}
"""


@pytest.fixture(scope="session")
def in_cloud(aws: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terraform]:
    """Terraform whose provider talks to moto."""
    if reason := unavailable():
        pytest.skip(reason)
    used = Terraform(tmp_path_factory.mktemp("in-cloud"), {"AWS_ENDPOINT_URL": aws})
    for folder in used.tree.glob("*/*/"):
        name = "moto_override.tf" if folder.parent.name == "examples" else "moto.tf"
        (folder / name).write_text(MOTO)
    with used.with_provider():
        yield used


NOTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}]}


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the one who made the brokers' secrets."""
    return tmp_path_factory.mktemp("secrets") / "kept"


@pytest.fixture(scope="session")
def etcd_tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    authority = Authority(tmp_path_factory.mktemp("etcd"))
    server, own = authority.issue("member"), authority.issue("client")
    return Tls(*map(Path, (authority.ca, server.certificate, server.key, own.certificate, own.key)))


@pytest.fixture(scope="session")
def broker_values(aws: str, kept: Path, etcd_tls: Tls) -> dict[str, Any]:
    ssm, secrets = client(aws, "ssm"), client(aws, "secretsmanager")
    for name, path in {
        "ca": etcd_tls.ca,
        "client-cert": etcd_tls.client_cert,
        "client-key": etcd_tls.client_key,
    }.items():
        ssm.put_parameter(Name=f"/tierlog/etcd/{name}", Type="SecureString", Value=path.read_text())
    made = put_by("modules/brokers/secrets.sh", kept.parent, "/tierlog/brokers")
    for name, path in made.items():
        ssm.put_parameter(Name=name, Type="SecureString", Value=path.read_text())
    ssm.put_parameter(Name="/tierlog/user", Type="SecureString", Value=SECRETS["TIERLOG_ETCD__USER"])
    secret = secrets.create_secret(Name="etcd-password", SecretString=SECRETS["TIERLOG_ETCD__PASSWORD"])["ARN"]
    policy = client(aws, "iam").create_policy(PolicyName="writer", PolicyDocument=json.dumps(NOTHING))
    s3 = client(aws, "s3")
    s3.create_bucket(Bucket="company-code", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="company-code", Key="tierlog-0.2.0-py3-none-any.whl", Body=wheel(b"pyarrow==26.0.0\n"))
    subnets = client(aws, "ec2").describe_subnets()["Subnets"]
    names = {"ca": "/tierlog/etcd/ca", "cert": "/tierlog/etcd/client-cert", "key": "/tierlog/etcd/client-key"}
    return {
        "name": "tierlog",
        "vpc_id": subnets[0]["VpcId"],
        "subnet_ids": [subnet["SubnetId"] for subnet in sorted(subnets, key=lambda each: each["AvailabilityZone"])],
        "data_volume_gib": 100,
        "bucket_url": "s3://company-logs/tierlog",
        "policy_arns": {"writer": policy["Policy"]["Arn"]},
        "package_source": "s3://company-code/tierlog-0.2.0-py3-none-any.whl",
        "metadata": "etcd://etcd-1.tierlog.internal:2379/tierlog",
        "etcd_client": {"security_group_id": "sg-0e", "parameters": names},
        "secrets": {
            "TIERLOG_ETCD__USER": f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/tierlog/user",
            "TIERLOG_ETCD__PASSWORD": secret,
        },
        "settings": {"topic.min.insync.replicas": "2", "archive.workers": "2"},
        "load_balancer": False,
        "ami_id": "ami-0123456789abcdef0",
    }


@pytest.fixture(scope="session")
def told(in_cloud: Terraform, broker_values: dict[str, Any]) -> Iterator[Told]:
    folder = "modules/brokers"
    in_cloud.write_values(folder, broker_values)
    in_cloud.init(folder)
    in_cloud.run(folder, "apply", "-auto-approve", "-input=false", "-no-color", f"-target={LAUNCHED}")
    state = json.loads(in_cloud.run(folder, "show", "-json"))["values"]["root_module"]["resources"]
    found = {each["address"]: each["values"] for each in state}
    volumes = {each["index"]: each["values"]["id"] for each in state if each["type"] == "aws_ebs_volume"}
    policy = json.loads(found["aws_iam_role_policy.broker"]["policy"])
    yield Told(policy, cloud_config(found[LAUNCHED]["user_data"]), volumes)
    in_cloud.run(folder, "destroy", "-auto-approve", "-input=false", "-no-color")


@pytest.fixture
def broker(told: Told, aws: str, tmp_path: Path) -> Iterator[Machine]:
    """The machine of broker 2."""
    with slots(told, aws) as machines:
        yield machines(2, tmp_path)
