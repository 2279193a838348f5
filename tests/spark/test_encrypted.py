"""Spark on an encrypted topic: our readers with the key and without, compaction, and copies that would be plain."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cold_tier.format.encryption import Writing
from cold_tier.format.write import write_segment
from cold_tier.keys.file import new_key, rotate_key
from cold_tier.keys.master import MasterKeys
from cold_tier.manifest.model import EpochStart
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from hot_tier.record.columns import NewRecord, iter_columns
from spark.jobs import compact as compact_job
from spark.jobs.command import JobRefused
from spark.jobs.export import ParquetFolder, export
from spark.jobs.replay import main as replay
from spark.jobs.values import Values
from spark.options import KEYS_FILE_VARIABLE, store_settings
from spark.plan import with_store
from spark.source import register, tierlog_read
from tests.cold_tier.format.test_cold_segment import log_of
from tests.integration.tiers import SOON
from tests.spark.conftest import Archive
from tests.spark.topics import consume, create, send, settle
from tests.support.service import services

pytestmark = pytest.mark.java

TOPIC = "payments"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    directory = tmp_path_factory.mktemp("sealed")
    new_key(f"{directory}/keys.json", "payments")
    with services(directory) as make:
        service = make(*SOON, "--bucket", f"file://{directory}/bucket", "--store.keys_file", f"{directory}/keys.json")
        create(service, TOPIC, 1, archive_encryption_key="payments")
        send(service, TOPIC, range(2000))
        ends = settle(service, TOPIC)
        yield Archive(service, f"file://{directory}/bucket", f"{directory}/bucket", consume(service, TOPIC), ends)


@pytest.fixture
def keys_file(sealed: Archive) -> str:
    return str(Path(sealed.path).parent / "keys.json")


def rows_of(frame) -> set:
    return {(row.offset, row.key and bytes(row.key), row.value and bytes(row.value)) for row in frame.collect()}


def expected(sealed: Archive) -> set:
    return {(row[2], row[5], row[6]) for row in sealed.rows}


def test_our_readers_give_every_record_with_the_key(spark: SparkSession, sealed: Archive, keys_file: str) -> None:
    assert rows_of(tierlog_read(spark, sealed.bucket, TOPIC, keysFile=keys_file)) == expected(sealed)
    register(spark)
    source = spark.read.format("tierlog").option("bucket", sealed.bucket).option("subscribe", TOPIC)
    assert rows_of(source.option("keysFile", keys_file).load()) == expected(sealed)


def test_without_the_key_there_is_an_error_that_names_it(spark: SparkSession, sealed: Archive) -> None:
    with pytest.raises(PySparkException, match="payments/1"):
        tierlog_read(spark, sealed.bucket, TOPIC).collect()


def test_offsets_and_times_need_no_key(spark: SparkSession, sealed: Archive) -> None:
    """By Spark's own Parquet reader, by DuckDB and by pyarrow."""
    count, last = len(sealed.rows), max(row[2] for row in sealed.rows)
    native = tierlog_read(spark, sealed.bucket, TOPIC, reader="native").selectExpr("count(offset)", "max(offset)")
    assert tuple(native.collect()[0]) == (count, last)
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        tierlog_read(spark, sealed.bucket, TOPIC, reader="native").select("value").collect()
    files = f"'{sealed.path}/topic={TOPIC}/*/*.parquet'"
    assert duckdb.sql(f'select count(*), max("offset") from read_parquet({files})').fetchall() == [(count, last)]
    with pytest.raises(duckdb.Error):
        duckdb.sql(f"select value from read_parquet({files})").fetchall()


def test_plain_copies_are_made_only_if_somebody_says_so(
    spark: SparkSession, sealed: Archive, keys_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_FILE_VARIABLE, keys_file)
    target = ParquetFolder(spark, str(tmp_path / "export"))
    values = Values("json", "a string")
    with pytest.raises(JobRefused, match="encrypted in the archive"):
        export(spark, sealed.bucket, TOPIC, target, values)
    flags = ["--bucket", sealed.bucket, TOPIC, "--to", str(tmp_path / "replay"), "--keys-file", keys_file]
    assert replay(flags) == 4
    assert not (tmp_path / "replay").exists()
    assert replay([*flags, "--decrypt"]) == 0
    assert spark.read.parquet(str(tmp_path / "replay")).count() == len(sealed.rows)


def test_compaction_encrypts_again_with_new_data_keys(
    spark: SparkSession, sealed: Archive, keys_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sealed.path, tmp_path / "bucket")
    shutil.copy(keys_file, tmp_path / "keys.json")
    (tmp_path / "keys.json").chmod(0o600)
    rotate_key(str(tmp_path / "keys.json"), "payments")
    monkeypatch.setenv(KEYS_FILE_VARIABLE, str(tmp_path / "keys.json"))
    bucket = f"file://{tmp_path}/bucket"
    before = {path.name for path in (tmp_path / "bucket").rglob("*.parquet")}
    report = compact_job.compact(spark, bucket, [TOPIC], offline=True)
    assert report.ok and report.partitions[0].segments_after == 1
    [new] = [path for path in (tmp_path / "bucket").rglob("*.parquet") if path.name not in before]
    assert pq.read_metadata(new).metadata[b"tierlog.master_key"] == b"payments/2"
    wrapped = set(re.findall(rb'"wrappedDEK":"([^"]+)"', new.read_bytes()))
    assert len(wrapped) == 5
    assert rows_of(tierlog_read(spark, bucket, TOPIC)) == expected(sealed)
    named = with_store(store_settings(bucket), lambda store: _master_keys(store))
    assert named == {"payments/2"}


async def _master_keys(store) -> set[str]:
    from cold_tier.inventory import find_topics

    [topic] = await find_topics(store, TOPIC)
    snapshot = await load_newest(store, topic.layouts[0])
    manifest = Manifest(snapshot, PageCache(store))
    return {each.master_key async for each in manifest.segments(0, snapshot.end_offset)}


READ = """
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.hadoop.ParquetReader;
import org.apache.parquet.hadoop.example.GroupReadSupport;

public class Read {
  public static void main(String[] given) throws Exception {
    Configuration conf = new Configuration();
    conf.set("parquet.crypto.factory.class", "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory");
    conf.set("parquet.encryption.kms.client.class", "KeyFile");
    conf.set("tierlog.keys.file", given[1]);
    Path file = new Path(given[0]);
    try (ParquetReader<Group> rows = ParquetReader.builder(new GroupReadSupport(), file).withConf(conf).build()) {
      for (Group row; (row = rows.read()) != null; )
        System.out.println(row.getLong("offset", 0) + " " + row.getBinary("value", 0).toStringUsingUTF8()
            + " " + row.getGroup("headers", 0).getGroup(0, 0).getGroup(0, 0).getBinary(1, 0).toStringUsingUTF8());
    }
  }
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
def test_parquet_java_reads_it_with_the_client_of_the_page(tmp_path: Path) -> None:
    """The class in docs/SPARK.md, as it stands there, with the jars of PySpark."""
    page = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text()
    (tmp_path / "KeyFile.java").write_text(page.partition("```java\n")[2].partition("```")[0])
    (tmp_path / "Read.java").write_text(READ)
    new_key(f"{tmp_path}/keys.json", "orders")
    keys = MasterKeys(f"{tmp_path}/keys.json")
    log, end = log_of([([NewRecord(1_700_000_000_000, b"k", b"v%d" % n, (("h", b"x"),))], 0) for n in range(5)])
    path = f"{tmp_path}/rows.parquet"
    write_segment(
        path, iter_columns(log, chunk_bytes=1), 0, end, (EpochStart(3, 0),), b"", {}, zstd_level=3,
        encryption=Writing(keys, keys.newest("orders"), "rows.parquet"),
    )  # fmt: skip
    jars = f"{Path(pyspark.__file__).parent}/jars/*"
    subprocess.run(["javac", "-cp", jars, "-d", str(tmp_path), *map(str, tmp_path.glob("*.java"))], check=True)
    command = ["java", "-Xmx256m", "-cp", f"{tmp_path}:{jars}", "Read", path, f"{tmp_path}/keys.json"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert found.splitlines() == [f"{n} v{n} x" for n in range(5)]
