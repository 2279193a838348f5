"""A disk that refuses: syncs that fail, no room left, stored bytes that changed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from benchmarks.process import wait_for
from benchmarks.service import TierlogServer

from .conftest import TARGET
from .plain import STORAGE_ERROR, read, send
from .scenario import make_topic

pytestmark = pytest.mark.skipif(TARGET != "tierlog", reason="looks into tierlog's own files")

CORRUPT_MESSAGE = 2


@pytest.fixture
def failing_sync(tmp_path: Path) -> Path:
    """The compiled shim."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the sync shim")
    library = tmp_path / "failing_sync.so"
    source = Path(__file__).with_name("failing_sync.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def test_a_failed_sync_is_never_acknowledged_and_never_tried_again(make_broker, tmp_path, failing_sync):
    switch = tmp_path / "syncs-fail"
    preload = {"LD_PRELOAD": str(failing_sync), "FAILING_SYNC_WHEN": str(switch), "FAILING_SYNC_PATH": "/bad-disk."}
    broker = make_broker(settings=preload)
    for topic in ("bad-disk", "good-disk"):
        make_topic(broker.bootstrap, topic, 1)
    assert [sent.offset for sent in send(broker.bootstrap, "bad-disk", [b"before"] * 3)] == [0, 1, 2]

    switch.touch()
    during = send(broker.bootstrap, "bad-disk", [b"during"] * 3)
    assert [sent.error for sent in during] == [STORAGE_ERROR] * 3
    assert send(broker.bootstrap, "good-disk", [b"elsewhere"])[0].offset == 0

    switch.unlink()
    after = send(broker.bootstrap, "bad-disk", [b"after"])
    assert after[0].error == STORAGE_ERROR, "the page cache may have dropped the failed pages: only a restart tells"
    assert list(read(broker.bootstrap, "bad-disk", 0, 3).records.values()) == [b"before"] * 3

    broker.stop()
    broker.start()
    again = send(broker.bootstrap, "bad-disk", [b"again"])
    assert again[0].error is None
    stored = read(broker.bootstrap, "bad-disk", 0, again[0].offset + 1).records
    assert [stored[offset] for offset in range(3)] == [b"before"] * 3
    assert stored[again[0].offset] == b"again"
    assert b"after" not in stored.values()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(mount)], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small tmpfs: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.parametrize("min_free_bytes", [0, 8 << 20], ids=["until the very end", "with a reserve"])
def test_a_full_disk_refuses_writes_loses_nothing_and_recovers(make_broker, small_disk, min_free_bytes):
    settings = {"TIERLOG_LOG__MIN_FREE_BYTES": str(min_free_bytes), "TIERLOG_LOG__FREE_CHECK_MS": "100"}
    broker = make_broker(data_dir=small_disk / "data", settings=settings)
    make_topic(broker.bootstrap, "full", 1, {"segment.bytes": "4194304"})
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(16 << 20))

    acknowledged: dict[int, bytes] = {}

    def fill(rounds: int) -> int | None:
        """Sends until an error comes; returns it."""
        for _ in range(rounds):
            values = [b"%d-" % len(acknowledged) + os.urandom(40_000) for _ in range(20)]
            for value, sent in zip(values, send(broker.bootstrap, "full", values), strict=True):
                if sent.offset is not None:
                    acknowledged[sent.offset] = value
                elif sent.error is not None:
                    return sent.error
        return None

    assert fill(80) == STORAGE_ERROR
    assert len(acknowledged) > 100
    held = dict(acknowledged)
    assert read(broker.bootstrap, "full", 0, len(held)).records.items() >= held.items(), "reads go on"

    ballast.unlink()
    wait_for(lambda: send(broker.bootstrap, "full", [b"room again"])[0].offset is not None, "writes to be taken", 20)
    assert fill(3) is None

    broker.kill()
    broker.start()
    stored = read(broker.bootstrap, "full", 0, max(acknowledged) + 1).records
    assert all(stored.get(offset) == value for offset, value in acknowledged.items())


@pytest.fixture
def lasting_disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 file system of 64 MB. Unlike a tmpfs it can turn read-only while files are open for writing."""
    image, mount = tmp_path / "disk", tmp_path / "mounted"
    mount.mkdir()
    image.touch()
    os.truncate(image, 64 << 20)
    for command in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(mount)]):
        if shutil.which(command[0]) is None:
            pytest.skip(f"no {command[0]} here")
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"cannot make and mount a file system in a file: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_disk_that_turns_read_only_is_told_and_nothing_is_acknowledged(make_broker, lasting_disk, tmp_path):
    broker = make_broker(data_dir=lasting_disk / "data", settings={"TIERLOG_LOG__MIN_FREE_BYTES": "0"})
    make_topic(broker.bootstrap, "kept", 1)
    assert [sent.offset for sent in send(broker.bootstrap, "kept", [b"before"] * 3)] == [0, 1, 2]

    # What the kernel does by itself after an error of the disk.
    subprocess.run(["mount", "-o", "remount,abort", str(lasting_disk)], check=True)
    assert [sent.error for sent in send(broker.bootstrap, "kept", [b"during"] * 3)] == [STORAGE_ERROR] * 3
    assert list(read(broker.bootstrap, "kept", 0, 3).records.values()) == [b"before"] * 3, "reads go on"
    metrics, ready = (
        urlopen(f"http://{broker.host}:{broker.http_port}/{path}").read() for path in ("metrics", "readyz")
    )
    assert b"tierlog_log_failed 1.0" in metrics
    assert b"a log takes no writes" in ready and b"Read-only file system" in ready
    assert "log failed" in broker.log_path.read_text()


def sealed_segments(broker: TierlogServer, topic: str) -> list[Path]:
    (directory,) = (broker.data_dir / "logs").glob(f"{topic}.*/0")
    return sorted(directory.glob("*.log"))[:-1]


@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_damage_in_a_sealed_segment_is_an_error_and_touches_nothing_else(make_broker, stop):
    broker = make_broker()
    for topic in ("damaged", "sound"):
        make_topic(broker.bootstrap, topic, 1, {"segment.bytes": "1048576"})
    values = [b"%06d" % n + bytes(20_000) for n in range(200)]
    for topic in ("damaged", "sound"):
        assert [sent.offset for sent in send(broker.bootstrap, topic, values)] == list(range(200))
    getattr(broker, stop)()

    segments = sealed_segments(broker, "damaged")
    assert len(segments) >= 3
    victim = segments[1]
    with victim.open("r+b") as file:
        file.seek(victim.stat().st_size // 2)
        file.write(b"\xde\xad\xbe\xef" * 16)
    broker.start()

    base = int(victim.stem)
    answer = read(broker.bootstrap, "damaged", 0, 200)
    assert answer.error == CORRUPT_MESSAGE
    assert base <= len(answer.records) < int(segments[2].stem), "served up to the damage, not beyond it"
    assert all(value == values[offset] for offset, value in answer.records.items())
    beyond = int(segments[2].stem)
    later = read(broker.bootstrap, "damaged", beyond, 200 - beyond)
    assert later.error is None and later.records == {n: values[n] for n in range(beyond, 200)}
    assert len(read(broker.bootstrap, "sound", 0, 200).records) == 200
    assert send(broker.bootstrap, "damaged", [b"next"])[0].offset == 200


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_is_rebuilt(make_broker, suffix):
    broker = make_broker()
    make_topic(broker.bootstrap, "indexed", 1, {"segment.bytes": "1048576"})
    values = [b"%06d" % n + bytes(20_000) for n in range(150)]
    send(broker.bootstrap, "indexed", values)
    broker.kill()
    for number, segment in enumerate(sealed_segments(broker, "indexed")):
        index = segment.with_suffix(suffix)
        if number % 2:
            index.unlink(missing_ok=True)
        else:
            index.write_bytes(os.urandom(64))
    broker.start()
    answer = read(broker.bootstrap, "indexed", 0, 150)
    assert answer.error is None and answer.records == dict(enumerate(values))
    for start in (1, 77, 149):
        assert read(broker.bootstrap, "indexed", start, 1).records[start] == values[start]
