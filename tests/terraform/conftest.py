"""Terraform is run on copies; where it cannot be run, the tests that need it are skipped with the reason."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.s3 import free_ports
from tests.terraform.tool import Terraform, unavailable


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    if reason := unavailable():
        pytest.skip(reason)
    return Terraform(tmp_path_factory.mktemp("terraform"))


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
def in_cloud(aws: str, tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    """Terraform whose provider talks to moto."""
    if reason := unavailable():
        pytest.skip(reason)
    used = Terraform(tmp_path_factory.mktemp("in-cloud"), {"AWS_ENDPOINT_URL": aws})
    for folder in used.tree.glob("*/*/"):
        name = "moto_override.tf" if folder.parent.name == "examples" else "moto.tf"
        (folder / name).write_text(MOTO)
    return used
