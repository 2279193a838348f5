"""The image, the compose file, the unit and the manifests: linted, and true to the commands and settings there are.

Containers cannot be run where these tests run: what needs no engine is run (the health check, in `test_installed`).
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packaging.conftest import ROOT
from tierlog.listeners import plan_listeners
from tierlog.secured import refuse_open
from tierlog.settings import all_settings, load_settings

DOCKERFILE = ROOT / "Dockerfile"
COMPOSE = ROOT / "compose.yaml"
UNIT = ROOT / "deploy" / "systemd" / "tierlog.service"
NODE = ROOT / "terraform" / "node"
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
OLDEST_KUBERNETES = "1.32"
TERRAFORM = sorted(
    path
    for path in (ROOT / "terraform").rglob("*")
    if path.suffix in (".tf", ".py", ".service", ".sh") and ".terraform" not in path.parts
)
MOST_EXPOSURE = 15
"""Of 100, by the count of systemd-analyze: what is left is the network, and what kernels and boot ids need."""


def tool(name: str) -> str:
    """Beside this Python, where `make venv` puts it, or on PATH; else the test is skipped."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def systemd_analyze(oldest: int = 0) -> str:
    found = tool("systemd-analyze")
    version = int(check(found, "--version").split()[1])
    if version < oldest:
        pytest.skip(f"needs systemd {oldest} or newer; here is {version}")
    return found


def check(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def documents() -> list[dict[str, Any]]:
    return [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())]


def named_settings() -> Iterator[tuple[str, str]]:
    for path in (DOCKERFILE, COMPOSE, UNIT, *MANIFESTS):
        for name in re.findall(r"\bTIERLOG_[A-Z0-9_]+\b", path.read_text()):
            yield path.name, name
    # Terraform has variables of its own too; those of settings have two underscores.
    for path in TERRAFORM:
        for name in re.findall(r"\bTIERLOG_[A-Z0-9]+__[A-Z0-9_]+\b", path.read_text()):
            yield path.name, name


def test_the_image_is_linted() -> None:
    check(tool("hadolint"), DOCKERFILE)


def test_the_image_has_what_it_copies_and_runs_without_rights() -> None:
    given = instructions()
    copied = [rest.split()[:-1] for word, rest in given if word == "COPY" and "--from=" not in rest]
    assert all((ROOT / name).exists() for names in copied for name in names)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {f"!{name}" for names in copied for name in names} == {name for name in ignored if name.startswith("!")}
    last = dict(given[max(at for at, (word, _) in enumerate(given) if word == "FROM") :])
    assert last["USER"] == "10001:10001"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(last["ENTRYPOINT"]) == ["tierlog"] and json.loads(last["CMD"]) == ["serve"]


def test_every_setting_exists() -> None:
    known = {setting.variable for setting in all_settings().values()}
    known |= {each.replace("<NAME>", name) for each in known for name in ("KAFKA", "HTTP", "INSIDE", "INSIDE_HTTP")}
    assert [each for each in named_settings() if each[1] not in known] == []


def test_the_manifests_let_nobody_in_who_is_not_known(tmp_path: Path) -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents()}
    variables = dict(found["ConfigMap", "tierlog"]["data"])
    (tmp_path / "password").write_text("a password\n")
    first = variables["TIERLOG_LOGIN__FIRST_PASSWORD"]
    pod = found["StatefulSet", "tierlog"]["spec"]["template"]["spec"]
    (broker,) = pod["containers"]
    mounted = [each["mountPath"] for each in broker["volumeMounts"]]
    for name in ("TLS__CERTIFICATE", "TLS__KEY", "TLS__CA", "ETCD__CERT", "ETCD__KEY", "ETCD__CA"):
        assert str(Path(variables[f"TIERLOG_{name}"]).parent) in mounted
    assert str(Path(first.removeprefix("file:")).parent) in mounted
    variables["TIERLOG_LOGIN__FIRST_PASSWORD"] = f"file:{tmp_path / 'password'}"
    variables["TIERLOG_KAFKA__HOST"] = "0.0.0.0"
    settings = load_settings(environment=variables)
    refuse_open(settings, tmp_path)
    assert settings.login.first_password == "a password" and settings.tls.peers == ("CN=broker",)
    plans = {plan.name: plan for plan in plan_listeners(settings)}
    ports = {each["name"]: each["containerPort"] for each in broker["ports"]}
    assert {name.replace("_", "-"): plan.port for name, plan in plans.items()} == ports
    assert {name for name, plan in plans.items() if "peers" in plan.takes} == {"inside", "inside_http"}


def test_the_brokers_of_the_compose_file_differ() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    brokers = [each for name, each in services.items() if name.startswith("broker-")]
    assert len(brokers) == 3
    for name in ("CLUSTER__NODE_ID", "CLUSTER__RACK", "KAFKA__PORT", "HTTP__PORT"):
        assert len({each["environment"][f"TIERLOG_{name}"] for each in brokers}) == 3, name
    assert len({each["volumes"][0] for each in brokers}) == 3
    assert all(each["read_only"] and each["cap_drop"] == ["ALL"] for each in brokers)
    assert {name for each in brokers for name in each["depends_on"]} <= set(services)


@pytest.mark.parametrize("terraform", [False, True], ids=["alone", "with what Terraform adds"])
def test_the_unit_is_valid(terraform: bool, tmp_path: Path) -> None:
    """The programs need not be installed here. What other units of this machine have wrong is not asked."""

    def copy(source: Path, name: str) -> Path:
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        found = re.sub(r"/opt/tierlog\S*", shutil.which("true") or "/bin/true", source.read_text())
        target.write_text(found)
        return target

    unit = copy(UNIT, UNIT.name)
    if terraform:
        copy(NODE / "tierlog.service.conf", "tierlog.service.d/terraform.conf")
        copy(NODE / "tierlog-prepare.service", "tierlog-prepare.service")
    said = check(systemd_analyze(oldest=250), "verify", "--man=no", "--recursive-errors=no", unit)
    assert [line for line in said.splitlines() if unit.name in line] == []


def test_the_unit_is_hardened() -> None:
    security = (systemd_analyze(oldest=250), "security", "--no-pager", "--offline=true")
    check(*security, f"--threshold={MOST_EXPOSURE}", UNIT)


@pytest.mark.parametrize("version", ["newest", OLDEST_KUBERNETES])
def test_the_manifests_fit_the_schema(version: str) -> None:
    chosen = () if version == "newest" else ("-k", version)
    check(tool("kubernetes-validate"), "--strict", *chosen, *MANIFESTS)


def test_the_manifests_fit_each_other() -> None:
    """Names that a schema cannot check: selectors, services, config maps and ports."""
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents()}
    sets = [each for (kind, _), each in found.items() if kind == "StatefulSet"]
    assert len(sets) == 2
    for each in sets:
        spec, pod = each["spec"], each["spec"]["template"]
        labels = pod["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        service = found["Service", spec["serviceName"]]["spec"]
        assert service["clusterIP"] == "None" and service["selector"] == labels
        assert found["PodDisruptionBudget", each["metadata"]["name"]]["spec"]["selector"]["matchLabels"] == labels
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] and pod["spec"]["securityContext"]["runAsNonRoot"]
        ports = {port["name"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["ports"]} <= ports
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        volumes = [*pod["spec"].get("volumes", ()), *(claim["metadata"] for claim in spec["volumeClaimTemplates"])]
        assert mounted == {volume["name"] for volume in volumes}
    (broker,) = found["StatefulSet", "tierlog"]["spec"]["template"]["spec"]["containers"]
    assert ("ConfigMap", broker["envFrom"][0]["configMapRef"]["name"]) in found
    members = re.findall(
        r"tierlog-etcd-\d\.tierlog-etcd:2379", found["ConfigMap", "tierlog"]["data"]["TIERLOG_CLUSTER__METADATA"]
    )
    assert len(members) == found["StatefulSet", "tierlog-etcd"]["spec"]["replicas"]
