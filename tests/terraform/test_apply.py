"""Real applies against moto's server: a second plan finds nothing to do, and destroy leaves nothing."""

from typing import Any

import pytest

from tests.terraform.tool import Terraform

APPLIED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "modules/monitoring": ({"name": "tierlog", "emails": ["oncall@example.org"]}, []),
    # moto knows no release of EMR with Spark 4; all the rest of the example is applied.
    "examples/archive-reader-only": (
        {"bucket_name": "company-logs", "code_bucket": "company-code"},
        [
            "-target=module.bucket",
            "-target=module.spark.aws_iam_role_policy.code",
            "-target=module.spark.aws_iam_role_policy_attachment.reader",
        ],
    ),
}
OTHERWISE = ("-input=false", "-no-color")


def addresses(in_cloud: Terraform, folder: str) -> list[str]:
    return in_cloud.run(folder, "state", "list").splitlines()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("folder", APPLIED)
def test_apply_then_nothing_to_do_then_destroy(in_cloud: Terraform, folder: str) -> None:
    values, targets = APPLIED[folder]
    in_cloud.write_values(folder, values)
    in_cloud.init(folder)
    in_cloud.run(folder, "apply", "-auto-approve", *OTHERWISE, *targets)
    assert len(addresses(in_cloud, folder)) > 3
    assert "No changes" in in_cloud.run(folder, "plan", *OTHERWISE, *targets)
    in_cloud.run(folder, "destroy", "-auto-approve", *OTHERWISE)
    assert addresses(in_cloud, folder) == []
