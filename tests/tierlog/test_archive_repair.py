"""A real node on a real S3 server whose bucket goes back, and the person who puts it right at the command line."""

from pathlib import Path

import boto3
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.support.command import tierlog
from tests.support.s3 import credentials, weed
from tests.support.service import MakeService
from tests.support.waiting import wait_until
from tests.tierlog.test_archive_commands import QUICK, consumed, fill, make_topic, until_archived
from tierlog.client import Client, Refused, path
from tierlog.process import ServeProcess


def warnings(service: ServeProcess) -> list[str]:
    with Client(service.url) as client:
        found: list[str] = client.get("/readyz")["warnings"]
    return found


async def positions_it_reads(service: ServeProcess) -> list[int]:
    """What a Kafka consumer gets of partition 0 from its start in two seconds."""
    consumer = AIOKafkaConsumer(bootstrap_servers=service.kafka, auto_offset_reset="none")
    await consumer.start()
    try:
        partition = TopicPartition("orders", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found = await consumer.getmany(partition, timeout_ms=2000)
        return [record.offset for records in found.values() for record in records]
    finally:
        await consumer.stop()


@pytest.mark.timeout(300)
async def test_a_bucket_that_went_back_is_put_right(
    make_service: MakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    with weed(tmp_path / "weed") as s3:
        name = s3.new_bucket()
        bucket = ("--bucket", f"s3://{name}/logs", "--s3-endpoint", s3.endpoint)
        client = boto3.client("s3", endpoint_url=s3.endpoint, region_name="us-east-1")

        def delete(of: str) -> None:
            keys = [each["Key"] for each in client.list_objects_v2(Bucket=name)["Contents"]]
            for key in filter(lambda key: of in key, keys):
                client.delete_object(Bucket=name, Key=key)

        service = make_service(*QUICK, "--set", "archive.garbage_check_ms=200", *bucket, **credentials())
        make_topic(service, "orders")
        fill(service, "orders")
        ends = [each["archived"]["end_offset"] for each in until_archived(service, "orders")]
        before = consumed(service, "orders")
        assert warnings(service) == []

        delete("/0/manifest/")
        wait_until(lambda: warnings(service), "it is stopped")
        assert "tierlog archive recover orders 0" in warnings(service)[0]
        ran = tierlog("archive", "status", server=service.url, code=1)
        assert "orders-0: the archive is stopped: " in ran.err and "orders-1" not in ran.err
        [finding] = tierlog("archive", "verify", *bucket, "--json", code=1).json["findings"]
        assert finding["kind"] == "manifest"
        with Client(service.url) as api:
            told = list(api.post_lines(path("archive", "verify"), {"topics": []}))
        assert {each["kind"] for each in told if each["type"] == "finding"} == {"manifest", "went-back"}
        service.stop()
        service.start()  # What it had read of the manifests is no longer in its memory.
        wait_until(lambda: warnings(service), "it is stopped")
        with Client(service.url) as api, pytest.raises(Refused) as refused:
            api.get(path("topics", "orders", "partitions", "0", "messages"), offset=0)
        assert refused.value.problem["type"].endswith("archive-stopped")
        assert await positions_it_reads(service) == [], "an error, and no record that is not the first"
        ran = tierlog("archive", "recover", "orders", server=service.url)
        assert f"orders-0: archived up to offset {ends[0]}" in ran.out
        assert warnings(service) == [] and consumed(service, "orders") == before
        assert (await positions_it_reads(service))[0] == 0

        delete("partition=1/")
        delete("/1/")
        wait_until(lambda: warnings(service), "it is stopped")
        ran = tierlog("archive", "recover", "orders", "1", server=service.url, code=4)
        assert f"offsets 0 to {ends[1] - 1} are neither" in ran.err
        [repaired] = tierlog("archive", "accept-loss", "orders", "1", "--json", server=service.url).json["partitions"]
        lost = repaired["lost"]
        assert lost == [{"start_offset": 0, "end_offset": ends[1]}]
        assert warnings(service) == []
        after = consumed(service, "orders")
        assert after[0] == before[0] and after[1] == before[1][ends[1] :]
        with Client(service.url) as api:
            assert api.get(path("topics", "orders", "archive"))["partitions"][1]["archived"]["lost"] == lost
            assert list(api.post_lines(path("archive", "verify"), {"topics": []}))[-1]["problems"] == 0
            with pytest.raises(Refused, match="nothing to decide"):
                api.post(path("topics", "orders", "partitions", "0", "archive", "repair"), {"decision": "take-over"})
