"""What a bucket holds, whatever else lies in it."""

from uuid import uuid4

from cold_tier.inventory import find_topics
from cold_tier.layout import ROOT, PartitionLayout, Version, topic_folder
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.memory import MemoryStore


async def test_what_is_not_ours_hides_no_topic() -> None:
    store = Bucket(MemoryStore())
    layout = PartitionLayout("orders", uuid4(), 3)
    folder = topic_folder("orders", layout.topic_id)
    await store.put(layout.manifest(Version(0, 0)), b"")
    for key in (f"{ROOT}readme", f"{folder}0", f"{folder}notes/manifest", f"{folder}1/manifest.bak"):
        await store.put(key, b"somebody's")
    for found in (await find_topics(store), await find_topics(store, "orders")):
        assert [(topic.name, topic.layouts) for topic in found] == [("orders", (layout,))]
