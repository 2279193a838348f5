"""A Spark session with what a bucket needs: S3A of Hadoop's own version, path-style addresses, the AWS credentials.

On a cluster `spark-submit` decides all of this, and `session` takes what it finds.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from hot_tier.errors import SettingsError


def hadoop_version() -> str:
    """Of the Hadoop inside this PySpark: `hadoop-aws` must be of the same."""
    for jar in (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"):
        if found := re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name):
            return found[1]
    raise SettingsError("this PySpark has no Hadoop inside", hint="install it with pip, or set SPARK_HOME up by hand")


def s3a_config(s3_endpoint: str = "") -> dict[str, str]:
    """What a session needs for `s3a://`; the jars come from Maven Central once, into `~/.ivy2`.

    Credentials are those of the AWS chain: environment, profile, web identity, container, instance.
    """
    config = {
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
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
    """The session that runs, or one on all cores of this machine."""
    builder = SparkSession.Builder().appName(name)
    wanted = {"spark.ui.enabled": "false", **(s3a_config(s3_endpoint) if s3 or s3_endpoint else {}), **(config or {})}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Otherwise spark-submit started this program, and has named the master.
        wanted = {"spark.master": "local[*]", **wanted}
        # Workers run this very Python: Spark would take whichever `python3` it finds.
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
