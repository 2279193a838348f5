"""What the wheel holds: every module of ours under `tierlog`, and nothing beside it."""

import base64
import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.packaging.conftest import ROOT, build_wheel

PACKAGES = ("tierlog", "gateway", "offloader", "spark", "cold_tier", "hot_tier")
ONLY_IN_A_CHECKOUT = "tierlog/spark.py"


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_only_top_level_package_is_tierlog(wheel: Path) -> None:
    names = contents(wheel)
    dist_info = f"{wheel.name.split('-py3')[0]}.dist-info"
    assert {name.split("/")[0] for name in names} == {"tierlog", dist_info}
    assert names[f"{dist_info}/top_level.txt"].decode().split() == ["tierlog"]
    assert "tierlog = tierlog.__main__:main" in names[f"{dist_info}/entry_points.txt"].decode()
    assert wheel.name.endswith("-py3-none-any.whl")


def test_it_has_every_file_of_the_packages_and_is_typed(wheel: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {name for name in tracked.stdout.split() if (ROOT / name).exists()} - {ONLY_IN_A_CHECKOUT}
    expected = {name if name.startswith("tierlog/") else f"tierlog/{name}" for name in files} | {"tierlog/py.typed"}
    expected.add("tierlog/constraints.txt")
    packed = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert packed == expected
    assert contents(wheel)["tierlog/constraints.txt"] == (ROOT / "constraints.txt").read_bytes()


def test_the_record_vouches_for_every_file(wheel: Path) -> None:
    files = contents(wheel)
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    listed = {name: digest for name, digest, _ in csv.reader(io.StringIO(files[record].decode()))}
    assert set(listed) == set(files)
    for name in set(files) - {record}:
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        assert listed[name] == f"sha256={digest}", name


def test_a_source_distribution_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, 'deploy/wheel'); import tierlog_wheel; tierlog_wheel.build_sdist(sys.argv[1])"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, timeout=120, capture_output=True)
    (archive,) = tmp_path.glob("tierlog-*.tar.gz")
    rebuilt = build_wheel(archive, tmp_path)
    assert contents(rebuilt) == contents(wheel)
