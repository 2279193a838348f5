"""Makes a Spark session that can read a bucket: S3A of Hadoop's own version, path-style addresses, the AWS credentials.

Under `spark-submit` Java already runs, with the jars that it was given. Then no jar is requested.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
from pyspark import java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from hot_tier.errors import SettingsError


def hadoop_version() -> str:
    """Returns the version of the Hadoop inside this PySpark. `hadoop-aws` must have the same."""
    for jar in (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"):
        if found := re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name):
            return found[1]
    raise SettingsError("this PySpark has no Hadoop inside", hint="install it with pip, or set SPARK_HOME up by hand")


def s3a_config(s3_endpoint: str = "") -> dict[str, str]:
    """Returns the settings that a session needs for `s3a://`. The jars come from Maven Central once, into `~/.ivy2`.

    Credentials are those of the AWS chain: environment, profile, web identity, container, instance. Under
    `spark-submit` PySpark is an archive without Hadoop, and a running Java accepts no more jars.
    """
    config = {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"} if _starts_java() else {}
    config |= {
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
    }
    if s3_endpoint:
        config |= {
            "spark.hadoop.fs.s3a.endpoint": s3_endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(s3_endpoint.startswith("https://")).lower(),
        }
    return config


def session(
    name: str = "tierlog", *, s3: bool = False, s3_endpoint: str = "", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Returns the running session, or a new one on all cores of this machine."""
    builder = SparkSession.Builder().appName(name)
    wanted = {"spark.ui.enabled": "false", **(s3a_config(s3_endpoint) if s3 or s3_endpoint else {}), **(config or {})}
    if _starts_java():
        wanted = {"spark.master": "local[*]", **wanted}
        # Workers must run this Python. Without this Spark would take the first `python3` that it finds.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SettingsError(
            "Java does not start, and Spark needs it", hint="install Java 17, or say where it is with JAVA_HOME"
        ) from error


@contextmanager
def own_session(
    name: str, *, s3: bool = False, s3_endpoint: str = "", config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Makes a session for the `with` block. Ctrl-C ends it and its Java at once, even while it starts."""
    with _java_ends_on_interrupt(), tempfile.TemporaryDirectory(prefix="tierlog-spark-") as scratch:
        # Spark makes this directory as soon as it looks for a table; by default in the current directory.
        started = {"spark.sql.warehouse.dir": f"{scratch}/warehouse"} if _starts_java() else {}
        spark = session(name, s3=s3, s3_endpoint=s3_endpoint, config={**started, **(config or {})})
        if _starts_java() and threading.current_thread() is threading.main_thread():
            # Spark's own handler would ask Java to cancel the jobs in the middle of another request to it.
            signal.signal(signal.SIGINT, _interrupt)
        yield spark
        spark.stop()


@contextmanager
def _java_ends_on_interrupt() -> Iterator[None]:
    """Java ignores Ctrl-C, and until it has started nothing else ends it. So this kills it."""
    started: list[subprocess.Popen[Any]] = []

    def start(*arguments: Any, **options: Any) -> "subprocess.Popen[Any]":
        started.append(subprocess.Popen(*arguments, **options))
        return started[-1]

    java_gateway.Popen = start  # type: ignore[assignment, attr-defined]
    try:
        yield
    except KeyboardInterrupt:
        for each in started:
            each.kill()
            each.wait()
        raise
    finally:
        java_gateway.Popen = subprocess.Popen  # type: ignore[attr-defined]


def _interrupt(number: int, frame: object) -> None:
    # The program ends now. Without this py4j would write a traceback for the answer that it waits for.
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


def _starts_java() -> bool:
    """Returns False if `spark-submit` started this program; it has then set the master."""
    return "PYSPARK_GATEWAY_PORT" not in os.environ


def session_endpoints(spark: SparkSession) -> dict[str, str]:
    """Returns the S3-compatible stores that Hadoop's settings name, by bucket; `*` stands for all other buckets. A
    bucket that is not there is in Amazon S3."""
    settings = {}
    context = getattr(spark, "_jsc", None)
    if context is not None:
        settings["endpoint"] = context.hadoopConfiguration().get("fs.s3a.endpoint")
    prefix = "spark.hadoop.fs.s3a."
    settings |= {name.removeprefix(prefix): value for name, value in spark.conf.getAll.items() if prefix in name}
    secure = settings.get("connection.ssl.enabled", "true").lower() != "false"
    found = {}
    for name, value in settings.items():
        named = re.fullmatch(r"(?:bucket\.(.+)\.)?endpoint", name)
        if named and value and not value.endswith(".amazonaws.com"):
            found[named[1] or "*"] = value if "://" in value else f"{'https' if secure else 'http'}://{value}"
    return found


def session_endpoint(spark: SparkSession, bucket: str) -> str:
    """Returns the endpoint of the bucket's store, or an empty text for Amazon S3."""
    endpoints = session_endpoints(spark)
    return endpoints.get(urlsplit(bucket).netloc) or endpoints.get("*") or ""
