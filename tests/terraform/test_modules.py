"""Terraform's own checks: format, and `terraform test` with a mocked provider for every module and example."""

import re

import pytest

from tests.terraform.tool import FOLDERS, Terraform

QUICK = ("modules/bucket", "modules/brokers", "examples/three-zone")
"""What most of the rest is made of; the others are tested by `make test-all`."""


def test_the_format_is_terraforms_own(terraform: Terraform) -> None:
    assert terraform.run(".", "fmt", "-check", "-recursive", "-diff", codes=(0, 3)) == ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "folder", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FOLDERS]
)
def test_plans_are_what_they_should_be(terraform: Terraform, folder: str) -> None:
    """`terraform test` validates the configuration first."""
    terraform.init(folder)
    assert re.search(r"\b[1-9]\d* passed, 0 failed", terraform.run(folder, "test", "-no-color"))
