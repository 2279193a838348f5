"""Rules, alerts and the dashboard: right by promtool, about metrics that there are, and evaluated by a Prometheus that
scrapes a running broker."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.service import MakeService
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.process import ServeProcess

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
RULES = sorted((MONITORING / "rules").glob("*.yml"))
DASHBOARD = MONITORING / "grafana" / "dashboards" / "tierlog.json"
METRIC = re.compile(r"\b(?:tierlog|process)_[a-z0-9_]+")
RECORD = re.compile(r"\btierlog:[a-z0-9_:]+")
ONLY_WHEN_AUDITED = "tierlog_audit_"


def rules() -> list[dict[str, Any]]:
    return [rule for file in RULES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return asked + [rule["expr"] for rule in rules()]


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} is not installed here (make test-tools)")


def promtool(*words: str | Path) -> None:
    need("promtool")
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_wrong() -> None:
    promtool("check", "rules", *RULES)
    promtool("check", "config", MONITORING / "prometheus.yml")


def test_alerts_fire_on_what_they_are_for() -> None:
    promtool("test", "rules", "tests/monitoring/alerts.yml")


def test_every_alert_has_its_part_of_the_runbook() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "RUNBOOK.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    named = {rule["annotations"]["runbook"] for rule in rules() if "alert" in rule}
    assert all(each.startswith("docs/RUNBOOK.md#") for each in named)
    assert {each.split("#")[1] for each in named} <= anchors
    assert len(named) == sum("alert" in rule for rule in rules()), "one part for each"


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + right, place["y"] + down) for right in range(place["w"]) for down in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = {name for expression in expressions() for name in RECORD.findall(expression)}
    assert used == recorded, "every recorded rule is used, and no other"


def test_what_is_asked_for_is_told(service: ServeProcess) -> None:
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=30) as answer:
        told = {line.split()[2] for line in answer.read().decode().splitlines() if line.startswith("# TYPE")}
    told |= {f"{name}{end}" for name in told for end in ("_bucket", "_sum", "_count", "_total")}
    asked = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert {name for name in asked - told if not name.startswith(ONLY_WHEN_AUDITED)} == set()


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """A Prometheus with our rules, whose only target is this broker; its address."""
    need("prometheus", "promtool")
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(MONITORING / "rules" / "*.yml")]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    log = directory / "prometheus.log"
    flags = ["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", "--web.listen-address=127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen(["prometheus", *flags], cwd=directory, stderr=output, stdout=output)
    try:
        found: list[str] = []

        def listens() -> bool:
            found[:] = re.findall(r"Listening on.*?address=(127\.0\.0\.1:\d+)", log.read_text())
            assert process.poll() is None, log.read_text()
            return bool(found)

        wait_until(listens, "Prometheus listens", 60)
        yield f"http://{found[0]}"
    finally:
        process.terminate()
        process.wait(30)


def ask(server: str, where: str) -> Any:
    with urllib.request.urlopen(f"{server}/api/v1/{where}", timeout=30) as answer:
        return json.load(answer)["data"]


def test_a_prometheus_scrapes_a_broker(make_service: MakeService, tmp_path: Path) -> None:
    service = make_service("--set", "log.min_free_bytes=0")
    with Client(service.url) as client, prometheus(tmp_path, service.http) as server:
        client.post(path("topics"), {"name": "orders", "partitions": 2, "config": {"remote.storage.enable": "true"}})

        def scraped() -> bool:
            client.post(path("topics", "orders", "messages", "batch"), {"messages": [{"value": "v" * 100}] * 50})
            told = ask(server, "query?query=tierlog:in_bytes:rate5m")["result"]
            return any(each["metric"]["topic"] == "orders" and float(each["value"][1]) > 0 for each in told)

        wait_until(scraped, "the throughput is recorded", 60)
        [target] = ask(server, "targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        told = [rule for group in ask(server, "rules")["groups"] for rule in group["rules"]]
        assert len(told) == len(rules())
        wait_until(
            lambda: all(rule["health"] == "ok" for group in ask(server, "rules")["groups"] for rule in group["rules"]),
            "every rule is evaluated",
        )
        firing = [each["labels"]["alertname"] for each in ask(server, "alerts")["alerts"] if each["state"] == "firing"]
        assert [each for each in firing if each != "TierlogDiskFillsUp"] == [], "nothing is wrong with this broker"
        service.kill()
        wait_until(lambda: ask(server, "query?query=up")["result"][0]["value"][1] == "0", "the broker is missed")
