"""The last act: sealed segments are Parquet in the bucket, and Spark and DuckDB read them there."""

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import time
from urllib.parse import unquote, urlsplit

from hot_tier.clock import steady_s
from tierlog.client import Client, path
from tierlog.demo.report import Report

_ARCHIVE_WAIT_S = 45.0
_SPARK_TIMEOUT_S = 300.0
"""Much longer than it takes, even on a busy machine."""


def read_the_archive(client: Client, report: Report, bucket: str, topic: str) -> None:
    report.act("Spark reads the archive", "Sealed segments are Parquet in the bucket; nobody asks the broker for them.")
    rows = _archived_rows(client, topic)
    report.say(f"{rows:,} records of `{topic}` are in {bucket}")
    _count_with_spark(report, bucket, topic, rows)
    _count_with_duckdb(report, unquote(urlsplit(bucket).path), topic, rows)


def _archived_rows(client: Client, topic: str) -> int:
    """Waits until every sealed segment is archived, then returns the number of archived rows."""
    deadline = steady_s() + _ARCHIVE_WAIT_S
    while True:
        partitions = client.get(path("topics", topic, "archive"), limit=0)["partitions"]
        waiting = [each for each in partitions if each["backlog_bytes"] or not each["archived"]]
        if not waiting or steady_s() > deadline:
            return sum(each["archived"]["end_offset"] for each in partitions if each["archived"])
        time.sleep(0.1)


def _count_with_spark(report: Report, bucket: str, topic: str, rows: int) -> None:
    missing = [
        name
        for name, there in (
            ("Java", shutil.which("java") is not None),
            ("pyspark", importlib.util.find_spec("pyspark") is not None),
        )
        if not there
    ]
    if missing:
        report.say(f"skipped: {' and '.join(missing)} is not installed here (pip install 'tierlog[spark]', a JRE 17)")
        return
    report.show(f'tierlog_read(spark, "{bucket}", "{topic}").groupBy(date_trunc("hour", "timestamp")).count()')
    command = [sys.executable, "-m", "tierlog.demo.spark_counts", bucket, topic]
    began = steady_s()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as counting:
        try:
            told, complaints = counting.communicate(timeout=_SPARK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # SIGINT lets it end its Java too; a kill would not. Ctrl-C reaches it as well, with the same effect.
            counting.send_signal(signal.SIGINT)
            report.check("Spark reads the archive", False, f"not within {_SPARK_TIMEOUT_S:.0f} s: is the machine busy?")
            return
    if counting.returncode:
        report.check("Spark reads the archive", False, complaints.strip().splitlines()[-1] if complaints else "")
        return
    hours = json.loads(told.splitlines()[-1])
    report.table(("hour (UTC)", "orders>"), [(hour, f"{count:,}") for hour, count in hours[-5:]])
    report.say(f"the last five of {len(hours):,} hours; {steady_s() - began:.1f} s, most of it Spark's start")
    report.check("Spark counts every archived order", sum(count for _, count in hours) == rows, f"{rows:,}")


def _count_with_duckdb(report: Report, folder: str, topic: str, rows: int) -> None:
    query = f"select count(*) from read_parquet('{folder}/topic={topic}/*/*.parquet')"
    report.show(f'duckdb -c "{query}"')
    if importlib.util.find_spec("duckdb") is None:
        report.say("skipped: duckdb is not installed here (pip install duckdb)")
        return
    import duckdb

    [(found,)] = duckdb.connect().execute(query).fetchall()
    report.check("DuckDB counts the same, over the same files", found == rows, f"{found:,}")
