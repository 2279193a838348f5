"""Stores what a released version leaves behind: `python -m tests.golden.make_release CHECKOUT v0.1.0`.

CHECKOUT is a worktree of that version. Its own `tierlog serve` runs, with the packages of the present `.venv`. Start
this in an empty directory with PYTHONPATH set to the root of the present tree: a process looks for modules in its
working directory first.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.golden.releases import HERE, Seen, idempotent_batch, load, look, new_producer, send_batch
from tests.support.etcd import EtcdCluster, etcd_cluster
from tests.support.service import QUICK
from tierlog.process import ServeProcess

FLAGS = [*QUICK, "--set", "groups.offsets_topic_partitions=2"]
for setting in ("log.retention_check_ms=200", "log.compaction_check_ms=200", "archive.check_ms=100"):
    FLAGS += ["--set", setting]


def make(checkout: Path, out: Path) -> None:
    environment = {"PYTHONPATH": str(checkout)}
    show = "import tierlog, hot_tier, gateway; print(tierlog.__file__, hot_tier.__file__, gateway.__file__)"
    found = subprocess.check_output([sys.executable, "-c", show], env={**os.environ, **environment}, text=True)
    assert all(name.startswith(f"{checkout}/") for name in found.split()), found
    expected = {
        "stopped": one_node(out, environment, "stopped"),
        "killed": one_node(out, environment, "killed"),
        "cluster": three_nodes(out, environment),
    }
    (out / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def one_node(out: Path, environment: dict[str, str], ending: str) -> Seen:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        process = ServeProcess(folder / "node", FLAGS, environment)
        stack.callback(process.kill)
        process.start()
        seen = loaded(process)
        pin(folder / "node" / "bucket", environment)
        process.stop() if ending == "stopped" else process.kill()
        pack(out / f"{ending}.tar.xz", folder / "node")
        return seen


def three_nodes(out: Path, environment: dict[str, str]) -> Seen:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(etcd_cluster(1))
        shared = ["--metadata", cluster.url, "--bucket", f"file://{folder / 'bucket'}"]
        nodes = [
            ServeProcess(folder / f"broker-{n}", [*FLAGS, *shared, "--node-id", str(n), "--rack", f"r{n}"], environment)
            for n in (1, 2, 3)
        ]
        for node in nodes:
            stack.callback(node.kill)
            node.start()
        seen = loaded(nodes[0], replicas=3)
        pin(folder / "bucket", environment)
        dump(cluster, out / "metadata-running.json")
        for node in nodes:
            node.stop()
        dump(cluster, out / "metadata-stopped.json")
        pack(out / "cluster.tar.xz", folder / "bucket", *(node.data_dir for node in nodes))
        return seen


def loaded(process: ServeProcess, replicas: int = 1) -> Seen:
    load(process.kafka, process.http, replicas)
    batch = idempotent_batch(*asyncio.run(new_producer(process.kafka)))
    offset = send_batch(process.kafka, batch)
    return {**look(process.kafka, process.http), "batch": base64.b64encode(batch).decode(), "batch_offset": offset}


def pin(bucket: Path, environment: dict[str, str]) -> None:
    words = ["archive", "pin", "history", "--bucket", f"file://{bucket}", "--name", "job", "--for", "36500d"]
    subprocess.run([sys.executable, "-m", "tierlog", *words], env={**os.environ, **environment}, check=True)


def dump(cluster: EtcdCluster, path: Path) -> None:
    """Every key with its value, as text, and whether it hangs on a lease."""
    everything = base64.b64encode(b"\0").decode()
    answer = cluster.leader.call("/v3/kv/range", {"key": everything, "range_end": everything})
    kvs = answer["kvs"]
    assert isinstance(kvs, list)
    lines = [
        json.dumps(
            {
                "key": base64.b64decode(kv["key"]).decode(),
                "value": base64.b64decode(kv["value"]).decode(),
                "leased": kv.get("lease", "0") != "0",
            }
        )
        for kv in kvs
    ]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def pack(archive: Path, *folders: Path) -> None:
    def nameless(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:xz") as tar:
        for folder in folders:
            tar.add(folder, folder.name, filter=nameless)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve(), HERE / sys.argv[2])
