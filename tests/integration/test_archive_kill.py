"""kill -9 at every step of the archive path, then a restart: no gap, no duplicate, no lost record.

rows | index | verified | manifest | metadata | local delete       (steps of archiving)
log start | manifest | grace | objects deleted                     (steps of expiry)
"""

import asyncio
from pathlib import Path

import pytest

from cold_tier.checking.verify import verify
from cold_tier.inventory import find_topics
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.reports import Finding
from offloader.failpoints import PLACES
from tests.integration.tiers import SOON, Sender, archived_rows, create_topic, read_all
from tests.support.service import MakeService
from tests.support.waiting import wait_until

EXPIRING = ("--set", "archive.delete_grace_ms=0")


async def findings(bucket: str) -> list[object]:
    store = open_store(StoreSettings(bucket=bucket))
    events = [event async for event in verify(store, await find_topics(store))]
    return [event for event in events if isinstance(event, Finding) and event.kind != "orphan"]


OFTEN = (
    "archive.rows_uploaded",
    "archive.before_publish",
    "archive.published",
    "retention.local_dropped",
    "garbage.before_delete",
)
"""In every run; the others take as long again and are slow."""


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=() if place in OFTEN else pytest.mark.slow)
        for place in PLACES
        # No record of this test is in a transaction, so nothing is put aside.
        if not place.startswith(("deleted.", "replace.")) and place != "archive.aside_uploaded"
    ],
)
def test_killed_at(place: str, tmp_path: Path, make_service: MakeService) -> None:
    bucket = f"file://{tmp_path}/bucket"
    service = make_service(*SOON, *EXPIRING, "--bucket", bucket)
    expires = place.startswith(("retention", "garbage")) and place != "retention.local_dropped"
    create_topic(service, "orders", **({"retention_bytes": "400000"} if expires else {}))
    service.stop()

    service.environment["TIERLOG_FAILPOINTS"] = f"{place}=kill@2"
    service.start()
    sender = Sender(service, "orders")
    process = service.process
    assert process is not None

    def killed() -> bool:
        sender.send(200)
        sender.poll(0.05)
        return process.poll() is not None

    wait_until(killed, f"the broker dies at {place}\n{service.output()}")
    assert process.returncode == -9
    service.kill()

    del service.environment["TIERLOG_FAILPOINTS"]
    service.start()
    sender.send(500)
    sender.flush()
    assert sorted(sender.acked.values()) == list(range(sender.sent)), "every record acknowledged, each once"

    newest = max(sender.acked)

    def archived() -> bool:
        # The active segment stays local: all but the last 100 kB must reach the bucket.
        return max((offset for offset, _ in archived_rows(bucket, "orders")), default=0) > newest - 800

    wait_until(archived, "the backlog drains")
    rows = archived_rows(bucket, "orders")
    offsets = [offset for offset, _ in rows]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), "no gap and no row twice"
    assert all(sender.acked[offset] == number for offset, number in rows)
    if not expires:
        assert offsets[0] == 0
        assert read_all(service, "orders", sender.sent) == [sender.acked[n] for n in range(sender.sent)]
    service.stop()
    assert asyncio.run(findings(bucket)) == []
