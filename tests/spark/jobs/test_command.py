"""Jobs as commands: every way to start one, and how each way of ending is told."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from cold_tier.errors import CorruptObject, NoSuchBucket, StoreMisconfigured, StoreUnavailable
from hot_tier.errors import OffsetOutOfRange, SettingsError, TierlogError, UnknownTopic
from hot_tier.record.columns import NewRecord
from hot_tier.record.validate import MAX_TIMESTAMP_MS
from spark.gateway import GatewayUnavailable
from spark.jobs.command import exit_code, report, show_time
from spark.jobs.export_ranges import ExportRefused
from tests.spark.jobs.buckets import archive_of
from tests.spark.jobs.submit import PROGRAM, submit
from tests.spark.topics import START_MS
from tests.support.command import tierlog
from tierlog.cli.spark import JOBS


@pytest.mark.parametrize("name", JOBS)
def test_every_job_says_how_to_submit_it(name: str) -> None:
    job = import_module(f"spark.jobs.{name}")
    text = job.parser().format_help()
    assert f"spark-submit job.py spark {name} " in text and callable(job.main)
    assert PROGRAM.strip().replace("\n", "; ") in text


def test_tierlog_lists_them_and_hands_flags_on() -> None:
    assert all(f"\n  {name} " in tierlog("spark", "--help").out for name in JOBS)
    assert "--plot FILE" in tierlog("spark", "audit", "--help").out
    assert "--bucket" in tierlog("spark", "audit", code=2).err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("x"), 2),
        (StoreMisconfigured("x"), 2),
        (NoSuchBucket("x"), 3),
        (UnknownTopic("x"), 3),
        (OffsetOutOfRange("x"), 4),
        (ExportRefused("x"), 4),
        (StoreUnavailable("x"), 5),
        (GatewayUnavailable("x"), 5),
        (CorruptObject("x"), 1),
    ],
)
def test_exit_codes(error: TierlogError, code: int) -> None:
    assert exit_code(error) == code


def test_errors_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    error = UnknownTopic("no such topic", where="here", hint="look there")
    assert report(error, as_json=False) == 3
    assert capsys.readouterr().err == "error: here: no such topic\n  hint: look there\n"
    report(error, as_json=True)
    said = json.loads(capsys.readouterr().err)
    assert said == {"error": "no such topic", "where": "here", "hint": "look there", "exit_code": 3}


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_submit(tmp_path: Path) -> None:
    bucket = archive_of(tmp_path / "bucket", "orders", [[NewRecord(START_MS, b"k", b"v", ())] * 10])
    ran = submit(tmp_path, "spark", "audit", "--bucket", bucket, "--json")
    # This bucket has no description of its topic: that is found, and nothing else.
    assert ran.returncode == 1, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert (found["rows"], found["found"]) == (10, {"missing": 1})


def test_any_timestamp_of_a_record_is_shown() -> None:
    assert [show_time(ms) for ms in (-1, 0)] == ["-", "1970-01-01 00:00:00"]
    assert show_time(MAX_TIMESTAMP_MS) == str(MAX_TIMESTAMP_MS)


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = tierlog("spark", "audit", "--bucket", f"file://{tmp_path}", code=2)
    assert "Java does not start" in ran.err and "JAVA_HOME" in ran.err
