"""What the examples would make, by the real provider: nothing open, nothing in the clear, no right to everything."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.terraform.tool import Terraform, resources

CLIENTS = ["10.1.0.0/16"]
IMAGE = "ami-0123456789abcdef0"
EVERYBODY = {"0.0.0.0/0", "::/0"}


def subnets(aws: str) -> list[dict[str, Any]]:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    found = boto3.client("ec2", endpoint_url=aws, region_name="eu-west-1", **keys).describe_subnets()["Subnets"]
    return sorted((each for each in found if each["DefaultForAz"]), key=lambda each: str(each["AvailabilityZone"]))


def values(folder: str, aws: str) -> dict[str, Any]:
    if folder == "examples/archive-reader-only":
        return {"bucket_name": "company-logs", "code_bucket": "company-code"}
    given: dict[str, Any] = {"bucket_name": "company-logs", "client_cidrs": CLIENTS, "ami_id": IMAGE}
    given["package_source"] = "tierlog==0.2.0"
    if folder == "examples/existing-network":
        given |= {"vpc_id": subnets(aws)[0]["VpcId"], "subnet_ids": [each["SubnetId"] for each in subnets(aws)]}
    return given


@pytest.fixture(
    scope="module",
    params=[
        "examples/existing-network",
        *(
            pytest.param(f"examples/{name}", marks=pytest.mark.slow)
            for name in ("single-node", "three-zone", "archive-reader-only")
        ),
    ],
)
def planned(request: pytest.FixtureRequest, in_cloud: Terraform, aws: str) -> list[dict[str, Any]]:
    return list(resources(in_cloud.plan(request.param, values(request.param, aws))))


def of(planned: list[dict[str, Any]], *types: str) -> Iterator[dict[str, Any]]:
    return (each["values"] for each in planned if each["type"] in types)


def statements(planned: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of every policy that is known before it is made."""
    for each in of(planned, "aws_iam_policy", "aws_iam_role_policy"):
        if each.get("policy"):
            yield from json.loads(each["policy"])["Statement"]


@pytest.mark.timeout(300)
def test_no_policy_allows_everything(planned: list[dict[str, Any]]) -> None:
    found = list(statements(planned))
    assert found
    for statement in found:
        assert not any("*" in action for action in statement["Action"]), statement
        # What has no resource of its own is bounded by a condition.
        assert "*" not in statement["Resource"] or statement.get("Condition"), statement


def test_nothing_is_open_to_everybody(planned: list[dict[str, Any]]) -> None:
    rules = list(of(planned, "aws_vpc_security_group_ingress_rule", "aws_vpc_security_group_egress_rule"))
    assert not [rule for rule in rules if {rule.get("cidr_ipv4"), rule.get("cidr_ipv6")} & EVERYBODY]
    assert not [group for group in of(planned, "aws_security_group") if group.get("ingress") or group.get("egress")]
    assert all(balancer["internal"] for balancer in of(planned, "aws_lb"))
    assert not any(subnet["map_public_ip_on_launch"] for subnet in of(planned, "aws_subnet"))


def test_machines_are_closed(planned: list[dict[str, Any]]) -> None:
    for each in of(planned, "aws_launch_template", "aws_instance"):
        assert each["metadata_options"][0]["http_tokens"] == "required"
    for template in of(planned, "aws_launch_template"):
        assert template["network_interfaces"][0]["associate_public_ip_address"] == "false"
        assert all(disk["ebs"][0]["encrypted"] == "true" for disk in template["block_device_mappings"])
    assert all(member["root_block_device"][0]["encrypted"] for member in of(planned, "aws_instance"))
    assert all(volume["encrypted"] for volume in of(planned, "aws_ebs_volume"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_internet_is_reached_only_if_asked_for_and_never_reaches_in(in_cloud: Terraform, aws: str) -> None:
    folder = "examples/three-zone"
    plan = list(resources(in_cloud.plan(folder, values(folder, aws) | {"internet_egress": True})))
    out = [rule for rule in of(plan, "aws_vpc_security_group_egress_rule") if rule.get("cidr_ipv4") in EVERYBODY]
    assert sorted(rule["to_port"] for rule in out) == [80, 80, 443, 443]
    assert not [rule for rule in of(plan, "aws_vpc_security_group_ingress_rule") if rule.get("cidr_ipv4") in EVERYBODY]
