#!/usr/bin/env python3
"""What a machine of a tierlog cluster does for itself on EC2. Runs with Python 3.10 or newer and boto3.

    node.py install      install the broker into /opt/tierlog
    node.py mount        attach the data volume, format what is blank, mount it
    node.py files        write the files whose contents are parameters of SSM (certificates, a password)
    node.py certificate  make this broker's certificate anew, by the authority in SSM
    node.py environment  write the broker's environment: who it is, and its secrets
    node.py drain        wait until this machine is to be terminated, stop the broker, let the termination go on
    node.py metrics      send the broker's most important metrics to CloudWatch
    node.py backup       send a snapshot of etcd to the bucket

Everything it is told is in /etc/tierlog/node.json, written by Terraform. Credentials are the machine's role.

Rules: what holds data is never formatted; nothing secret is written to a disk, /run is memory.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

CONFIG = Path(os.environ.get("TIERLOG_NODE_CONFIG", "/etc/tierlog/node.json"))
METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
INSTANCE_STORE = "Amazon EC2 NVMe Instance Storage"
STRIPE = "/dev/md/tierlog"
TESTED_WITH = "tierlog/constraints.txt"
WAIT_S = 300
POLL_S = float(os.environ.get("TIERLOG_NODE_POLL_S", "5"))

METRICS = {
    # metric of /metrics: (name in CloudWatch, unit, how the samples of one broker become one value)
    "tierlog_under_replicated_partitions": ("UnderReplicatedPartitions", "Count", sum),
    "tierlog_under_min_in_sync_partitions": ("UnderMinInSyncPartitions", "Count", sum),
    "tierlog_log_failed": ("FailedLogs", "Count", sum),
    "tierlog_log_damaged_segments": ("DamagedSegments", "Count", sum),
    "tierlog_archive_stopped": ("StoppedArchives", "Count", sum),
    "tierlog_archive_backlog_bytes": ("ArchiveBacklogBytes", "Bytes", sum),
    "tierlog_disk_free_bytes": ("DiskFreeBytes", "Bytes", min),
    "tierlog_loop_delay_max_seconds": ("LoopDelayMaxSeconds", "Seconds", max),
}


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    COMMANDS[arguments[0]](json.loads(CONFIG.read_text()))
    return 0


# The program


def install(config: Mapping[str, Any]) -> None:
    """From a pip requirement, the address of a wheel, or a wheel in S3. The wheel says which versions of its
    dependencies it was tested with, so a machine that is made later gets the same."""
    source, home = config["package_source"], config.get("home", "/opt/tierlog")
    run("python3", "-m", "venv", home)
    with tempfile.TemporaryDirectory() as folder:
        if source.startswith("s3://"):
            bucket, _, key = source.removeprefix("s3://").partition("/")
            source = os.path.join(folder, os.path.basename(key))
            with open(source, "wb") as file:
                file.write(client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
        else:
            run(f"{home}/bin/pip", "download", "--no-deps", "--dest", folder, source)
        versions = Path(folder, "constraints.txt")
        versions.write_bytes(tested_with(next(Path(folder).glob("*.whl"))))
        run(f"{home}/bin/pip", "install", "--disable-pip-version-check", "--constraint", str(versions), source)


def tested_with(wheel: Path) -> bytes:
    """Empty for 0.1.0, which does not say."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(TESTED_WITH) if TESTED_WITH in archive.namelist() else b""


# The data disk


def mount(config: Mapping[str, Any]) -> None:
    """The EBS volume that the configuration names, or else the disks inside the machine."""
    target = config["mount"]["path"]
    if os.path.ismount(target):
        return
    volume = own_volume(config)
    if volume and config["mount"].get("attach"):
        attach(volume)
    if volume:
        device = wait_for(lambda: ebs_device(volume), f"the volume {volume} is not there yet")
    else:
        device = one_device(instance_disks(json.loads(run("lsblk", "--json", "--output", "PATH,MODEL"))))
    for command in mount_commands(device, filesystem(device), target, config["mount"]["user"]):
        run(*command)


def own_volume(config: Mapping[str, Any]) -> str | None:
    """The volume of this machine's slot. A machine that Terraform made alone is told its volume itself."""
    volumes: dict[str, str] = config["mount"].get("volumes", {})
    return config["mount"].get("volume") or (volumes[tag("tierlog:node-id")] if volumes else None)


def attach(volume: str) -> None:
    """Also after another machine of this slot: then it waits until that one has let go of it."""
    from botocore.exceptions import ClientError

    instance = metadata("instance-id")
    ec2 = client("ec2")

    def attached() -> bool:
        try:
            ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdf")
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code not in ("VolumeInUse", "IncorrectState"):
                raise
            return ebs_device(volume) is not None
        return True

    wait_for(attached, f"the volume {volume} is held by another machine", WAIT_S * 4)


def ebs_device(volume: str, folder: str = "/dev/disk/by-id") -> str | None:
    """By the volume's id: the names of NVMe devices change from boot to boot."""
    link = Path(folder, f"nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}")
    return str(link.resolve()) if link.exists() else None


def instance_disks(listing: Mapping[str, Any]) -> list[str]:
    return sorted(
        disk["path"] for disk in listing["blockdevices"] if (disk.get("model") or "").strip() == INSTANCE_STORE
    )


def one_device(disks: Sequence[str]) -> str:
    """Several disks become one stripe: a copy of the data is on other brokers, not on another disk of this one."""
    if not disks:
        raise SystemExit("this machine has no disk of its own: choose a type with NVMe, or set data_volume_gib")
    if len(disks) == 1:
        return disks[0]
    # After a restart of the machine the stripe is on the disks already.
    if not Path(STRIPE).exists() and subprocess.run(["mdadm", "--assemble", STRIPE, *disks]).returncode:
        if held := {disk: found for disk in disks if (found := filesystem(disk))}:
            told = ", ".join(f"{disk} ({found})" for disk, found in held.items())
            raise SystemExit(
                f"the disks cannot be put together, and these are not blank: {told}. They are left alone: see why with "
                "mdadm --examine; if the other brokers have all records, empty the disks with wipefs --all"
            )
        run("mdadm", "--create", STRIPE, "--run", "--level=0", f"--raid-devices={len(disks)}", *disks)
    return STRIPE


def filesystem(device: str) -> str:
    """What is on it: a filesystem, a member of a stripe, a table of partitions; empty if nothing is.

    A device that cannot be read ends the start: blkid would call it blank.
    """
    try:
        with open(device, "rb") as disk:
            disk.read(1 << 20)
    except OSError as error:
        raise SystemExit(f"{device} cannot be read, so nobody can say what is on it: {error}") from None
    command = ["blkid", "--probe", "--output", "value", "--match-tag", "TYPE", "--match-tag", "PTTYPE", device]
    found = subprocess.run(command, capture_output=True)
    if found.returncode not in (0, 2):
        raise SystemExit(f"blkid cannot say what is on {device}: {found.stderr.decode()}")
    return " ".join(found.stdout.decode().split())


def mount_commands(device: str, held: str, target: str, user: str) -> list[list[str]]:
    """Formats only what is blank."""
    if held not in ("", "xfs"):
        raise SystemExit(f"{device} holds {held}, not xfs: it is left alone; empty it, or choose another disk")
    return [
        *([["mkfs.xfs", device]] if not held else []),
        ["mkdir", "-p", target],
        ["mount", "-o", "noatime,nodev,nosuid,noexec", device, target],
        ["chown", f"{user}:{user}", target],
        ["chmod", "0700", target],
    ]


# Files and secrets


def files(config: Mapping[str, Any]) -> None:
    for path, parameter in config["files"].items():
        write_private(Path(path), awaited(parameter), config["mount"]["user"])


def certificate(config: Mapping[str, Any]) -> None:
    """For this machine's own addresses, with a key that never leaves it. The authority's key is here for that time
    alone, and for root alone. A broker that runs takes the new certificate up by itself."""
    told = config.get("certificate")
    if told is None:
        return
    folder = Path(told["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        made = Path(name)
        for file, parameter in (("ca.pem", told["ca"]), ("ca.key", told["ca_key"])):
            with open(made / file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:
                written.write(awaited(parameter))
        hosts = [word for host in (metadata("local-ipv4"), *told["hosts"]) for word in ("--host", host)]
        run(f"{config.get('home', '/opt/tierlog')}/bin/tierlog", "tls", "init", "--dir", name, *hosts)
        for file in ("ca.pem", "broker.key", "broker.pem"):
            write_private(folder / file, (made / file).read_text(), config["mount"]["user"])


def awaited(parameter: str) -> str:
    """A parameter that is not there is waited for: machines may be made before the secrets are."""
    ssm = client("ssm")

    def value() -> str | None:
        try:
            found: str = ssm.get_parameter(Name=parameter, WithDecryption=True)["Parameter"]["Value"]
        except ssm.exceptions.ParameterNotFound:
            return None
        return found

    text: str = wait_for(value, f"there is no parameter {parameter} in SSM yet", WAIT_S * 4)
    return text


def environment(config: Mapping[str, Any]) -> None:
    """The rest of the settings are in /etc/tierlog/tierlog.env, the same for every broker."""
    values = {
        "TIERLOG_CLUSTER__NODE_ID": tag("tierlog:node-id"),
        "TIERLOG_CLUSTER__RACK": metadata("placement/availability-zone"),
        "TIERLOG_KAFKA__ADVERTISED_HOST": metadata("local-ipv4"),
        "AWS_REGION": metadata("placement/region"),
        **{name: secret(arn) for name, arn in config["secrets"].items()},
    }
    for name, value in values.items():
        if "\n" in value:
            raise SystemExit(f"the value of {name} has more than one line")
    text = "".join(f"{name}={json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items())
    write_private(Path(config["environment"]), text, config["mount"]["user"])


def secret(arn: str) -> str:
    if ":secretsmanager:" in arn:
        found: str = client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]
    else:
        name = arn.partition(":parameter")[2]
        found = client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
    return found


def write_private(path: Path, text: str, user: str) -> None:
    """Whole or not at all: a broker may read it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    run("chown", f"{user}:{user}", name)
    os.replace(name, path)


# The end of a machine


def drain(config: Mapping[str, Any]) -> None:
    """The autoscaling group waits for this before it terminates the machine."""
    while metadata("autoscaling/target-lifecycle-state", missing="") != "Terminated":
        time.sleep(POLL_S)
    subprocess.run(["systemctl", "stop", config["unit"]], check=False)
    client("autoscaling").complete_lifecycle_action(
        AutoScalingGroupName=tag("tierlog:group"),
        LifecycleHookName=config["lifecycle_hook"],
        InstanceId=metadata("instance-id"),
        LifecycleActionResult="CONTINUE",
    )


# Metrics and backups


def metrics(config: Mapping[str, Any]) -> None:
    with urllib.request.urlopen(config["metrics_url"], timeout=10, context=as_broker(config)) as answer:
        found = summary(answer.read().decode())
    client("cloudwatch").put_metric_data(
        Namespace=config["namespace"],
        MetricData=[
            {
                "MetricName": METRICS[name][0],
                "Unit": METRICS[name][1],
                "Value": value,
                "Dimensions": [{"Name": "Cluster", "Value": config["cluster"]}],
            }
            for name, value in found.items()
        ],
    )


def as_broker(config: Mapping[str, Any]) -> SSLContext | None:
    """By the broker's own certificate, which needs no user and no password."""
    if (told := config.get("certificate")) is None:
        return None
    context = create_default_context(cafile=f"{told['folder']}/ca.pem")
    context.load_cert_chain(f"{told['folder']}/broker.pem", f"{told['folder']}/broker.key")
    return context


def summary(exposition: str) -> dict[str, float]:
    """A sum without samples is 0: a cluster that archives nothing has no stopped archive."""
    samples: dict[str, list[float]] = {name: [] for name in METRICS}
    for line in exposition.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in METRICS:
            samples[name].append(float(line.rpartition(" ")[2]))
    return {name: how(samples[name]) for name, (_, _, how) in METRICS.items() if samples[name] or how is sum}


def backup(config: Mapping[str, Any]) -> None:
    """Taken from this member, checked, and sent under its time."""
    with tempfile.TemporaryDirectory(dir=config["backup"].get("scratch")) as folder:
        file = os.path.join(folder, "snapshot.db")
        etcdctl = {**os.environ, **config["backup"]["environment"], "ETCDCTL_API": "3"}
        subprocess.run(["etcdctl", "snapshot", "save", file], env=etcdctl, check=True)
        subprocess.run(["etcdctl", "snapshot", "status", file], env=etcdctl, check=True)
        key = f"{config['backup']['prefix']}{time.strftime('%Y-%m-%dT%H-%M-%SZ', time.gmtime())}-{config['member']}.db"
        with open(file, "rb") as body:
            client("s3").put_object(Bucket=config["backup"]["bucket"], Key=key, Body=body)
    print(f"s3://{config['backup']['bucket']}/{key}")


# Around them


def metadata(path: str, missing: str | None = None) -> str:
    """From the instance metadata service, by version 2 alone."""
    ask = urllib.request.Request(f"{METADATA}/latest/api/token", method="PUT")
    ask.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
    with urllib.request.urlopen(ask, timeout=5) as answer:
        token = answer.read().decode()
    ask = urllib.request.Request(f"{METADATA}/latest/meta-data/{path}", headers={"X-aws-ec2-metadata-token": token})
    try:
        with urllib.request.urlopen(ask, timeout=5) as answer:
            return str(answer.read().decode().strip())
    except urllib.error.HTTPError as error:
        if error.code == 404 and missing is not None:
            return missing
        raise


def tag(name: str) -> str:
    return metadata(f"tags/instance/{name}")


def client(service: str) -> Any:
    import boto3

    region = os.environ.get("AWS_REGION") or metadata("placement/region")
    return boto3.client(service, region_name=region)


def wait_for(found: Callable[[], Any], waiting: str, seconds: float = WAIT_S) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{waiting}; gave up after {seconds:.0f} s")
        print(waiting, file=sys.stderr)
        time.sleep(POLL_S)
    return answer


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


COMMANDS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "install": install,
    "mount": mount,
    "files": files,
    "certificate": certificate,
    "environment": environment,
    "drain": drain,
    "metrics": metrics,
    "backup": backup,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
