"""Values that cannot work are refused before anything is made, with a message that says what to do."""

from typing import Any

import pytest

from tests.terraform.tool import Terraform

GIVEN: dict[str, dict[str, Any]] = {
    "modules/bucket": {"name": "company-logs"},
    "modules/etcd": {
        "name": "tierlog",
        "vpc_id": "vpc-0a",
        "subnet_ids": ["subnet-0a", "subnet-0b", "subnet-0c"],
        "backups": {"bucket": "company-logs", "prefix": "etcd-backups/"},
    },
    "modules/brokers": {
        "name": "tierlog",
        "vpc_id": "vpc-0a",
        "subnet_ids": ["subnet-0a"],
        "bucket_url": "s3://company-logs",
        "policy_arns": {"writer": "arn:aws:iam::123456789012:policy/writer"},
        "package_source": "tierlog==0.2.0",
    },
    "modules/spark": {
        "name": "readers",
        "bucket_url": "s3://company-logs",
        "reader_policy_arn": "arn:aws:iam::123456789012:policy/reader",
        "code_bucket": "company-code",
    },
    "modules/monitoring": {"name": "tierlog"},
    "modules/network": {"name": "tierlog", "zones": ["eu-west-1a"]},
}

WRONG: dict[str, list[dict[str, tuple[Any, str]]]] = {
    # Each round is one plan, with every value of it wrong at once.
    "modules/bucket": [
        {
            "name": ("Company.Logs", "Dots are refused"),
            "prefix": ("/logs/", "Leave out slashes at both ends"),
            "policies": (["owner"], "Name some of writer, collector and reader"),
            "kms_key_arn": ("alias/logs", "An alias cannot stand in an IAM policy"),
            "colder_classes": ([{"days": 90, "storage_class": "DEEP_ARCHIVE"}], "answer a GET with an error"),
            "abort_multipart_days": (0, "an upload that still runs must not lose its parts"),
            "keep_deleted_days": (-1, "or 0 for no versions"),
            "backup_days": (0, "with none there would be no backup"),
        },
        {"colder_classes": ([{"days": 7, "storage_class": "STANDARD_IA"}], "set days to 30 or more")},
    ],
    "modules/etcd": [
        {
            "name": ("Tierlog", "begins with a letter"),
            "subnet_ids": (["subnet-0a", "subnet-0b"], "name three or five subnets"),
            "dns_zone": ("internal", "a name with a dot in it"),
            "certificate_path": ("tierlog/etcd/", "with a slash in front and none at its end"),
            "instance_type": ("m7g.large", "x86-64"),
            "data_volume_gib": (1, "10 to 1000 GiB"),
            "backup_minutes": (1, "5 to 1440 minutes"),
            "ami_id": ("ubuntu", "ami-"),
        }
    ],
    "modules/brokers": [
        {
            "name": ("a-name-that-is-longer-than-twenty", "up to 20"),
            "subnet_ids": ([], "one per zone"),
            "brokers_per_zone": (0, "1 or more"),
            "instance_type": ("m7gd.large", "ARM processor"),
            "data_volume_gib": (5, "or 0 for the disks inside the machine"),
            "data_volume_iops": (100, "3000 to 16000"),
            "data_volume_mib_per_second": (1, "125 to 1000"),
            "bucket_url": ("company-logs", "s3://BUCKET/PREFIX"),
            "policy_arns": ({}, "cannot use the bucket"),
            "package_source": ("http://example.org/tierlog.zip", "the address of a wheel"),
            "kms_key_arn": ("alias/logs", "An alias cannot stand in an IAM policy"),
            "metadata": ("zookeeper://a:2181", "sqlite or etcd://"),
            "secrets": ({"etcd.password": "arn:aws:ssm:eu-west-1:123456789012:parameter/p"}, "environment variable"),
            "settings": ({"kafka.port": "9093"}, "use its own variables"),
            "client_cidrs": (["0.0.0.0/0"], "let everybody knock at the brokers"),
            "secrets_path": ("tierlog/brokers/", "with a slash in front and none at its end"),
            "kafka_port": (80, "does not run as root"),
            "http_port": (8083, "for brokers among themselves"),
            "ami_id": ("ubuntu", "ami-"),
            "stop_timeout_seconds": (1, "30 to 7200"),
        },
        {
            "secrets": ({"TIERLOG_ETCD__PASSWORD": "hunter2"}, "never the secret itself"),
            "settings": ({"etcd.password": "hunter2"}, "A password belongs into secrets"),
            "package_source": ("tierlog", "a pip requirement with its version"),
            "client_cidrs": (["10.0.0.0"], "such as 10.0.0.0/16"),
        },
        {"settings": ({"retention": "1"}, "A key is section.name")},
        {
            "settings": (
                {"authorization.enabled": "false", "listener.http.login": "none", "tls.peers": ""},
                "insecure = true opens them",
            )
        },
    ],
    "modules/spark": [
        {
            "name": ("Readers", "begins with a letter"),
            "release_label": ("emr-7.9.0", "bring Spark 3"),
            "bucket_url": ("company-logs", "s3://BUCKET/PREFIX"),
            "reader_policy_arn": ("reader", "policy_arns"),
            "code_bucket": ("s3://code", "without s3://"),
            "code_prefix": ("/code/", "without slashes at its ends"),
            "max_vcpus": (2, "8 or more"),
            "idle_minutes": (0, "1 to 10080"),
        }
    ],
    "modules/monitoring": [
        {
            "name": ("Tierlog", "begins with a letter"),
            "emails": (["oncall"], "oncall@example.org"),
            "min_free_gib": (1, "the alarm would come too late"),
            "max_backlog_gib": (0, "more than 0 GiB"),
        }
    ],
    "modules/network": [
        {
            "name": ("Tierlog", "begins with a letter"),
            "cidr": ("10.0.0.0/28", "/16 to /22"),
            "zones": ([], "one to five zones"),
        }
    ],
}
QUICK = ("modules/bucket", "modules/brokers")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "folder", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in WRONG]
)
def test_wrong_values_are_refused(in_cloud: Terraform, folder: str) -> None:
    for wrong in WRONG[folder]:
        said = in_cloud.refusals(folder, GIVEN[folder] | {name: value for name, (value, _) in wrong.items()})
        missing = [name for name, (_, message) in wrong.items() if not any(message in each for each in said)]
        assert missing == [], said
        assert len(said) == len(wrong), said
