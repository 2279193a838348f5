"""Members of etcd: the certificates that the script makes, and backups within what the members' role allows."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.terraform.iam import allowing, permissions
from tests.terraform.machine import REGION, machine, put_by
from tests.terraform.test_plans import IMAGE, subnets
from tests.terraform.tool import Terraform

NAMES = ("etcd-1.tierlog.internal", "etcd-2.tierlog.internal", "etcd-3.tierlog.internal")


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Path]:
    """What the script put into SSM, by the last word of the parameter's name."""
    found = put_by("modules/etcd/certificates.sh", tmp_path, "/tierlog/etcd", *NAMES)
    return {name.removeprefix("/tierlog/etcd/"): path for name, path in found.items()}


def openssl(*arguments: str) -> str:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True).stdout


def test_certificates_are_for_the_members_and_their_clients(stored: dict[str, Path]) -> None:
    assert set(stored) == {"ca", "member-cert", "member-key", "client-cert", "client-key"}
    for name, purpose in (("member", "sslserver"), ("member", "sslclient"), ("client", "sslclient")):
        openssl("verify", "-purpose", purpose, "-CAfile", str(stored["ca"]), str(stored[f"{name}-cert"]))
        public = openssl("x509", "-in", str(stored[f"{name}-cert"]), "-noout", "-pubkey")
        assert public == openssl("pkey", "-in", str(stored[f"{name}-key"]), "-pubout")
    text = openssl("x509", "-in", str(stored["member-cert"]), "-noout", "-ext", "subjectAltName")
    assert [name for name in NAMES if f"DNS:{name}" not in text] == []


def test_the_key_of_the_authority_leaves_the_folder_never(stored: dict[str, Path], tmp_path: Path) -> None:
    key = (tmp_path / "kept" / "ca-key.pem").read_text()
    assert key not in [path.read_text() for path in stored.values()]
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "kept").iterdir()} == {0}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_member_does_all_that_its_role_allows_and_nothing_else(in_cloud: Terraform, aws: str, tmp_path: Path) -> None:
    import boto3

    found = subnets(aws)
    values = {
        "name": "tierlog",
        "vpc_id": found[0]["VpcId"],
        "subnet_ids": [each["SubnetId"] for each in found],
        "backups": {"bucket": "etcd-test", "prefix": "etcd-backups/"},
        "certificate_path": "/members",
        "ami_id": IMAGE,
    }
    policy = json.loads(in_cloud.plan("modules/etcd", values)["planned_values"]["outputs"]["machine_policy"]["value"])
    save = "if sys.argv[2] == 'save':\n    open(sys.argv[3], 'w').write('a snapshot')"
    commands = {"chown": "", "etcdctl": save}
    with machine(tmp_path, aws, {"placement/region": REGION}, commands) as member:
        names = ("ca", "member-cert", "member-key")
        for name in names:
            parameter = {"Name": f"/members/{name}", "Type": "SecureString", "Value": f"the {name}"}
            boto3.client("ssm", region_name=REGION).put_parameter(**parameter)
        s3 = boto3.client("s3", region_name=REGION)
        s3.create_bucket(Bucket="etcd-test", CreateBucketConfiguration={"LocationConstraint": REGION})
        config = {
            "member": "etcd-1",
            "mount": {"user": "etcd"},
            "files": {str(tmp_path / "run" / f"{name}.pem"): f"/members/{name}" for name in names},
            "backup": {"bucket": "etcd-test", "prefix": "etcd-backups/", "environment": {}},
        }
        member.run("files", config)
        member.run("backup", config)
        [backup] = s3.list_objects_v2(Bucket="etcd-test")["Contents"]
        assert s3.get_object(Bucket="etcd-test", Key=backup["Key"])["Body"].read() == b"a snapshot"
    assert (tmp_path / "run" / "ca.pem").read_text() == "the ca"
    assert [str(each) for each in member.asked if not allowing(policy, each)] == []
    used = {permission for each in member.asked for permission in allowing(policy, each)}
    assert set(permissions(policy)) - used == set()
