"""The wheel alone, in a project that has folders with the names of ours: it works, and theirs stay theirs."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Installed
from tests.support.waiting import wait_until

THEIRS = ("gateway", "offloader", "spark", "cold_tier", "hot_tier")
COUNT = 300
ARCHIVED = ("segment.bytes=4000", "remote.storage.enable=true", "local.retention.ms=1", "file.delete.delay.ms=0")


@dataclass(frozen=True)
class Served:
    url: str
    bucket: Path


READ_ONLY = ("unshare", "--mount", "--map-root-user", "sh", "-c")
"""Then a script. What it mounts is seen by its own processes alone."""


@contextmanager
def serving(installed: Installed, data: str, *flags: str, within: Sequence[str] = ()) -> Iterator[tuple[str, Path]]:
    """The URL of a broker in the user's project, and what it writes to standard error. It has to stop on SIGTERM."""
    command = [*within, installed.bin / "tierlog", "serve", "--data-dir", data, *flags]
    command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--set", "archive.check_ms=100"]
    log = installed.project / f"{data}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=installed.project, env=installed.environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        ready = next((line for line in process.stdout if line.startswith("tierlog ready")), "")
        assert ready, log.read_text()
        yield "http://" + dict(word.split("=", 1) for word in ready.split()[2:])["http"], log
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def served(installed: Installed) -> Iterator[Served]:
    """The first start of an installation: it compiles the kernels."""
    for name in THEIRS:
        (installed.project / name).mkdir()
        (installed.project / name / "__init__.py").write_text(f"WHOSE = 'theirs'\nNAME = {name!r}\n")
    bucket = installed.project / "bucket"
    bucket.mkdir()
    with serving(installed, "data", "--bucket", bucket.as_uri()) as (url, log):
        assert "compiling kernels" in log.read_text()
        yield Served(url, bucket)


@pytest.fixture(scope="module")
def topic(installed: Installed, served: Served) -> str:
    """A topic whose sealed segments are in the bucket, and there alone."""
    server = ("--server", served.url)
    flags = [word for setting in ARCHIVED for word in ("--config", setting)]
    installed.run("tierlog", "topic", "create", "orders", "--partitions", "1", *flags, *server)
    for part in range(3):
        lines = "".join(f"order {number} {'x' * 30}\n" for number in range(part * COUNT // 3, (part + 1) * COUNT // 3))
        installed.run("tierlog", "produce", "orders", *server, stdin=lines)
    wait_until(lambda: archived(served) > 0, "sealed segments are in the bucket")
    return "orders"


def archived(served: Served) -> int:
    """How many records, once every sealed segment is in the bucket."""
    with urllib.request.urlopen(f"{served.url}/api/v1/topics/orders/archive", timeout=30) as answer:
        (partition,) = json.load(answer)["partitions"]
    done = partition["archived"] and partition["backlog_bytes"] == 0
    return int(partition["archived"]["end_offset"]) if done else 0


@pytest.mark.timeout(300)
def test_records_go_in_and_come_out_of_both_tiers(installed: Installed, served: Served, topic: str) -> None:
    out = installed.run("tierlog", "consume", topic, "--from-beginning", "--server", served.url)
    assert [line.split()[1] for line in out.splitlines()] == [str(number) for number in range(COUNT)]
    assert list(served.bucket.rglob("*.parquet"))
    assert archived(served) > 0


@pytest.mark.timeout(300)
def test_the_console_is_in_the_wheel(installed: Installed, served: Served) -> None:
    """The page, and every file that it and its modules name."""
    files = {"console/app.js": b"", "console": b""}
    waiting = list(files)
    while waiting:
        name = waiting.pop()
        with urllib.request.urlopen(f"{served.url}/{name}", timeout=30) as answer:
            files[name] = answer.read()
        named = re.findall(rb"""["'(](?:\./|console/)([a-z-]+\.(?:js|css|svg))["')]""", files[name])
        waiting += [each for each in {f"console/{found.decode()}" for found in named} if each not in files]
        files |= dict.fromkeys(waiting, b"")
    ours = {each.name for each in (ROOT / "gateway" / "http" / "console" / "static").iterdir()}
    assert {name.removeprefix("console/") for name in files if name != "console"} == ours - {"index.html"}
    assert not list(Path(installed.bin.parent).rglob("node_modules"))


def test_the_health_check_of_the_image_is_true(installed: Installed, served: Served) -> None:
    """The command of the Dockerfile, run as the image runs it: it fails where nobody listens."""
    (line,) = re.findall(r"^  CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    program, *arguments = json.loads(line)

    def check(url: str, data: str, code: int) -> None:
        told = {"TIERLOG_HTTP__PORT": url.rpartition(":")[2], "TIERLOG_LOG__DATA_DIR": str(installed.project / data)}
        environment, command = {**installed.environment, **told}, [installed.bin / program, *arguments]
        done = subprocess.run(command, env=environment, timeout=60, capture_output=True, check=False)
        assert done.returncode == code, done.stderr

    check(served.url, "data", 0)
    check("http://127.0.0.1:1", "data", 1)
    with serving(installed, "closed", "--secure") as (url, _):
        check(url, "closed", 0)


@pytest.mark.usefixtures("served")
def test_a_read_only_root_is_enough(installed: Installed) -> None:
    """As in the image: kernels were compiled before, and only the data directory can be written."""
    if shutil.which("unshare") is None or subprocess.run([*READ_ONLY, "true"], check=False).returncode:
        pytest.skip("no mounts of a test's own here")
    (installed.project / "image").mkdir()
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && ! touch /tmp/x 2>/dev/null && exec "$@"'
    within = (*READ_ONLY, script, str(installed.project / "image"))
    with serving(installed, "image", within=within) as (url, log):
        urllib.request.urlopen(f"{url}/readyz", timeout=30).close()
        assert "compiling kernels" not in log.read_text()
    assert list((installed.project / "image" / "kernels").rglob("*.nbi"))


def test_their_packages_and_ours_live_side_by_side(installed: Installed, served: Served) -> None:
    told = installed.run(
        "python",
        "-c",
        f"""
import importlib, pathlib
for name in {THEIRS}:
    assert importlib.import_module(name).WHOSE == "theirs", name
    ours = importlib.import_module(f"tierlog.{{name}}")
    assert not hasattr(ours, "WHOSE") and ours.__name__ == f"tierlog.{{name}}"
from tierlog.spark import read, register
print(read.__module__, pathlib.Path(importlib.import_module("tierlog").__file__).parent)
""",
    )
    module, place = told.split()
    assert module == "tierlog.spark.source"
    assert Path(place).is_relative_to(installed.bin.parent) and not Path(place).is_relative_to(ROOT)


def test_outside_the_checkout_no_short_name_is_there(installed: Installed, tmp_path: Path) -> None:
    """Else the tests above would show nothing."""
    program = f"import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, {THEIRS})))"
    subprocess.run(
        [installed.bin / "python", "-c", program], cwd=tmp_path, env=installed.environment, check=True, timeout=60
    )


@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java here, which Spark needs")
def test_spark_reads_the_archive(installed: Installed, served: Served, topic: str) -> None:
    """By Spark's own Parquet reader and by ours, whose tasks the executors find by the module's name."""
    program = """
import sys
import spark as theirs
from tierlog.spark import read
from tierlog.spark.session import own_session
with own_session("wheel", config={"spark.master": "local[2]", "spark.driver.host": "127.0.0.1"}) as session:
    for reader in ("native", "python"):
        print(read(session, sys.argv[1], sys.argv[2], reader=reader).count())
assert theirs.WHOSE == "theirs"
"""
    expected = archived(served)
    told = installed.run("python", "-c", program, served.bucket.as_uri(), topic, timeout=240)
    assert told.split() == [str(expected)] * 2
    audit = installed.run("tierlog", "spark", "audit", "--bucket", served.bucket.as_uri(), "--json", timeout=240)
    assert [each["rows"] for each in json.loads(audit)["partitions"]] == [expected]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_clean_environment_gets_a_working_command(wheel: Path, tmp_path: Path) -> None:
    """With dependencies from the registry, by the pinned versions."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    clean = Installed(tmp_path / "venv" / "bin", tmp_path)
    install = ("install", "--quiet", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"), str(wheel))
    clean.run("pip", *install, timeout=600)
    clean.run("tierlog", "demo", "--json")
