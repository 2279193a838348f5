"""The program on the machines, told what Terraform tells it. It asks AWS for all that its role allows, and no more."""

import json
import os
import re
import stat
import urllib.request
from pathlib import Path

import pytest

from tests.terraform.iam import allowing, permissions
from tests.terraform.machine import SECRETS, Machine, Told, at, environment, load, machine, wheel, written
from tests.terraform.tool import SOURCE
from tierlog.listeners import plan_listeners
from tierlog.process import ServeProcess
from tierlog.settings import load_settings

DEVICE = "/dev/nvme1n1"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_does_all_that_its_role_allows_and_nothing_else(
    told: Told, broker: Machine, service: ServeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.node, "ebs_device", {told.volumes["2"]: "/dev/zero"}.get)
    config = at(broker.folder, told.node) | {"metrics_url": f"{service.url}/metrics", "home": str(broker.folder)}
    for command in ("install", "mount", "files", "certificate", "environment", "metrics", "drain"):
        broker.run(command, config)
    assert [str(each) for each in broker.asked if not allowing(told.policy, each)] == []
    used = {permission for each in broker.asked for permission in allowing(told.policy, each)}
    # The groups and volumes of the other slots are for their machines.
    others = ("/tierlog-1", "/tierlog-3", told.volumes["1"], told.volumes["3"])
    assert [each for each in permissions(told.policy) if each not in used and not each[2].endswith(others)] == []


@pytest.mark.parametrize("versions", [b"pyarrow==26.0.0\n", None])
def test_dependencies_have_the_versions_that_the_wheel_names(versions: bytes | None, tmp_path: Path) -> None:
    """`pip` here downloads a wheel, and writes down what it is told to keep to."""
    (tmp_path / "a-wheel").write_bytes(wheel(versions))
    pip = f"""
import pathlib, shutil
_, command, *flags = sys.argv
if command == "download":
    shutil.copy({str(tmp_path / "a-wheel")!r}, flags[flags.index("--dest") + 1] + "/tierlog-0.2.0-py3-none-any.whl")
else:
    shutil.copy(flags[flags.index("--constraint") + 1], {str(tmp_path / "kept")!r})
"""
    with machine(tmp_path, "", {}, {"python3": "", "pip": pip}) as found:
        found.run("install", {"package_source": "tierlog[sql]==0.2.0", "home": str(tmp_path)})
        assert [(each[1], each[-1]) for each in found.called[1:]] == [
            ("download", "tierlog[sql]==0.2.0"),
            ("install", "tierlog[sql]==0.2.0"),
        ]
    assert (tmp_path / "kept").read_bytes() == (versions or b"")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_blank_disk_is_formatted_and_mounted(told: Told, broker: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.node, "ebs_device", lambda volume: "/dev/zero")
    broker.run("mount", told.node)
    changes = [each for each in broker.called if each[0] not in ("blkid", "lsblk")]
    assert changes[0] == ["mkfs.xfs", "/dev/zero"]
    assert changes[2] == ["mount", "-o", "noatime,nodev,nosuid,noexec", "/dev/zero", "/var/lib/tierlog"]


@pytest.mark.parametrize("held", ["xfs", "ext4"])
def test_what_holds_data_is_never_formatted(held: str) -> None:
    node = load()
    if held == "xfs":
        assert ["mkfs.xfs", DEVICE] not in node.mount_commands(DEVICE, held, "/var/lib/tierlog", "tierlog")
    else:
        with pytest.raises(SystemExit, match="holds ext4, not xfs: it is left alone"):
            node.mount_commands(DEVICE, held, "/var/lib/tierlog", "tierlog")


def test_a_disk_that_cannot_be_read_is_not_taken_for_blank(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="cannot be read, so nobody can say what is on it"):
        load().filesystem(str(tmp_path / "no-such-device"))


def test_disks_of_a_stripe_that_holds_data_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mdadm` cannot assemble them, as after one has failed; creating a stripe would overwrite the others."""
    node = load()
    (tmp_path / "mdadm").write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/called"\n[ "$1" = --create ]\n')
    (tmp_path / "mdadm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(node, "STRIPE", str(tmp_path / "stripe"))
    monkeypatch.setattr(node, "filesystem", {"/dev/a": "", "/dev/b": "linux_raid_member", "/dev/c": ""}.__getitem__)
    with pytest.raises(SystemExit, match=r"not blank: /dev/b \(linux_raid_member\).*mdadm --examine"):
        node.one_device(["/dev/a", "/dev/b"])
    assert "--create" not in (tmp_path / "called").read_text()
    assert node.one_device(["/dev/a", "/dev/c"]) == str(tmp_path / "stripe")
    assert "--create" in (tmp_path / "called").read_text()


def test_a_preparation_that_failed_is_tried_again() -> None:
    """And what needs it waits meanwhile: a job that has failed is not started again."""
    for name in ("tierlog-prepare", "tierlog-etcd-prepare"):
        unit = (SOURCE / "node" / f"{name}.service").read_text()
        assert {"Type=oneshot", "Restart=on-failure", "RestartSec=30", "RestartMode=direct"} <= set(unit.split("\n"))


def test_disks_inside_the_machine_are_told_from_volumes() -> None:
    listing = {
        "blockdevices": [
            {"path": "/dev/nvme0n1", "model": "Amazon Elastic Block Store"},
            {"path": "/dev/nvme2n1", "model": "Amazon EC2 NVMe Instance Storage"},
            {"path": "/dev/nvme1n1", "model": "Amazon EC2 NVMe Instance Storage  "},
            {"path": "/dev/nvme0n1p1", "model": None},
        ]
    }
    node = load()
    assert node.instance_disks(listing) == ["/dev/nvme1n1", "/dev/nvme2n1"]
    with pytest.raises(SystemExit, match="no disk of its own"):
        node.one_device([])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_understands_its_environment(told: Told, broker: Machine) -> None:
    """As systemd reads it: both files, and a secret with everything in it that could go wrong."""
    config = at(broker.folder, told.node)
    for command in ("files", "environment"):
        broker.run(command, config)
    assert stat.S_IMODE(Path(config["environment"]).stat().st_mode) == 0o600
    settings = load_settings(environment=environment(told, config, broker.folder))
    assert (settings.cluster.node_id, settings.cluster.rack) == (2, "eu-west-1b")
    assert (settings.kafka.advertised_host, settings.kafka.host) == ("127.0.0.2", "0.0.0.0")
    assert settings.etcd.password == SECRETS["TIERLOG_ETCD__PASSWORD"]
    assert settings.topic.min_insync_replicas == 2 and settings.archive.workers == 2
    assert settings.store.bucket == "s3://company-logs/tierlog"
    assert {plan.name: plan.protocol for plan in plan_listeners(settings)} == {
        "kafka": "sasl_tls",
        "http": "https",
        "inside": "tls",
        "inside_http": "https",
    }


def test_every_metric_of_the_alarms_is_sent(service: ServeProcess) -> None:
    """The names are those of a real broker, and the alarms wait for no other."""
    node = load()
    with urllib.request.urlopen(f"{service.url}/metrics") as answer:
        text = answer.read().decode()
    assert set(node.METRICS) <= set(re.findall(r"^# TYPE (\w+) ", text, re.M))
    found = node.summary(text)
    assert set(found) == set(node.METRICS)
    # Nothing is archived here, so these have no samples; an alarm that waits for them takes that for a failure.
    assert (found["tierlog_archive_stopped"], found["tierlog_archive_backlog_bytes"]) == (0, 0)
    alarms = (SOURCE / "modules" / "monitoring" / "main.tf").read_text()
    assert set(re.findall(r'metric = "(\w+)"', alarms)) == {name for name, _, _ in node.METRICS.values()}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_user_data_holds_no_secret(told: Told) -> None:
    assert not any(secret in json.dumps(told.config) for secret in SECRETS.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_units_run_what_is_written(told: Told) -> None:
    files = written(told.config)
    started = {command for text in files.values() for command in re.findall(r"^ExecStart=(\S+)", text, re.M)}
    assert started <= {"/opt/tierlog-node/node.py", "/opt/tierlog/bin/tierlog"}
    named = {word for command in told.config["runcmd"] for word in command if word.endswith((".service", ".timer"))}
    assert {f"/etc/systemd/system/{unit}" for unit in named} <= set(files)
