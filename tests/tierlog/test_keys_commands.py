"""`tierlog keys` and `tierlog archive shred` as a shell sees them."""

import asyncio
import os
from pathlib import Path

import pytest

from cold_tier.errors import KeyShredded
from cold_tier.keys.file import new_key, read_key_file
from hot_tier.record.batch import read_header
from hot_tier.record.columns import NewRecord, encode_records
from tests.offloader.harness import SMALL, TOPIC, archived_node
from tests.support.command import tierlog


def test_keys_are_made_and_listed_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    flags = ("--keys-file", str(file))
    shown = tierlog("keys", "new", "orders", *flags).out
    assert file.stat().st_mode & 0o777 == 0o600
    assert "version 2" in tierlog("keys", "rotate", "orders", *flags).out
    tierlog("keys", "new", "payments", *flags)
    [orders, payments] = (listed := tierlog("keys", "list", *flags, "--json")).json
    assert (orders["name"], orders["versions"], payments["versions"]) == ("orders", 2, 1)
    assert "there is, or was" in tierlog("keys", "new", "orders", *flags, code=2).err
    assert "no key" in tierlog("keys", "rotate", "absent", *flags, code=2).err
    assert "cannot name a key" in tierlog("keys", "new", "or/ders", *flags, code=2).err
    file.chmod(0o640)
    assert "chmod 600" in tierlog("keys", "list", *flags, code=2).err
    file.chmod(0o600)
    import base64

    for key in read_key_file(str(file))["orders"].versions.values():
        assert base64.b64encode(key).decode() not in shown + listed.out
    text = file.read_text()
    for wrong in ("", "[]", text[: len(text) // 2], text.replace('"version": 1', '"version": 2'), "\0" * 100):
        file.write_text(wrong)
        answer = tierlog("keys", "list", *flags, code=2)
        assert "not a key file" in answer.err and "Traceback" not in answer.err


async def test_shredding_ends_a_topics_history_and_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cold_tier.keys.master._LOOK_S", 0.0)
    file = str(tmp_path / "keys.json")
    new_key(file, "orders")
    config = {"archive.encryption.key": "orders"}

    async def shred(topic: str, *flags: str, code: int = 0):
        known = ("--bucket", f"file://{tmp_path}/bucket", "--keys-file", file, "--server", "http://127.0.0.1:1")
        return await asyncio.to_thread(tierlog, "archive", "shred", topic, *known, *flags, code=code)

    async with archived_node(str(tmp_path), config=config, keys_file=file) as node:
        await node.produce(40)
        await node.settle()
        assert "no topic 'absent'" in (await shred("absent", "--confirm", "absent", code=3)).err
        assert "nothing was destroyed" in (await shred(TOPIC, code=2)).err
        assert "'order'" in (await shred(TOPIC, "--confirm", "order", code=2)).err
        assert read_key_file(file)["orders"].versions

        await node.running.node.admin.create_topic("payments", 1, 1, {**SMALL, **config})
        other = node.running.node.partitions.get("payments", 0)
        for _ in range(4):
            batch = encode_records([NewRecord(node.clock.now_ms, b"k", b"v" * 900, ())])
            other.append(batch, read_header(batch), node.clock())
        await node.settle()
        refused = await shred(TOPIC, "--confirm", TOPIC, code=4)
        assert "payments" in refused.err and "--shared" in refused.err
        assert read_key_file(file)["orders"].versions

        done = await shred(TOPIC, "--confirm", TOPIC, "--shared")
        assert "cannot be read any more" in done.out and "local disk" in done.err
        assert read_key_file(file)["orders"].shredded_ms and os.stat(file).st_mode & 0o777 == 0o600
        with pytest.raises(KeyShredded):
            await node.read_cold(0, 5)
        await shred(TOPIC, "--confirm", TOPIC, "--shared")  # Twice is harmless.
        # Retention and garbage collection go on.
        await node.running.node.admin.replace_config(
            TOPIC, {**node.running.node.image.topic(TOPIC).config, "retention.ms": "1000", "local.retention.ms": "-2"}
        )
        node.clock.now_ms += 10_000
        await node.offloader.round()
        manifest = node.catalog.get(node.layout)
        assert manifest.snapshot.log_start_offset > 0
