"""Imports follow the packages that move under `tierlog`; what could not follow stops the build."""

import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from tests.packaging.conftest import ROOT

sys.path.insert(0, str(ROOT / "deploy" / "wheel"))
try:
    from imports import NotMovable, module_names, moved
finally:
    sys.path.pop(0)

MODULES = module_names(
    [PurePosixPath(name) for name in ("gateway/__init__.py", "gateway/lane.py", "spark/jobs/audit.py")]
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from gateway.lane import Lane\n", "from tierlog.gateway.lane import Lane\n"),
        ("from spark import source\n", "from tierlog.spark import source\n"),
        ("import hot_tier.log.seal as seal\n", "import tierlog.hot_tier.log.seal as seal\n"),
        ("import os, hot_tier as h, spark.plan as p\n", "import os, tierlog.hot_tier as h, tierlog.spark.plan as p\n"),
        ("é = 'é'; from gateway import lane\n", "é = 'é'; from tierlog.gateway import lane\n"),
        ("def f():\n    from gateway.lane import (\n        Lane,\n    )\n", None),
        ("import os\nfrom tierlog.cli import app\nfrom . import lane\nfrom gateways import x\n", None),
        ('"""Prose of `gateway.lane`."""\nconf = {"spark.sql.x": "gateway"}\n', None),
    ],
)
def test_only_our_imports_change(before: str, after: str | None) -> None:
    expected = after or before.replace("    from gateway", "    from tierlog.gateway")
    assert moved(before, "x.py", MODULES) == expected


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import gateway.lane\n", "x.py:1: write `from"),
        ("\nfrom  gateway.lane import Lane\n", "x.py:2: write `from gateway.lane import`"),
        ('run("-m", "gateway.lane")\n', "x.py:1: the text 'gateway.lane' names a module"),
        ('load(f"spark.jobs.{name}")\n', "x.py:1: the text 'spark.jobs.' names a module"),
    ],
)
def test_what_could_not_follow_is_refused(source: str, told: str) -> None:
    with pytest.raises(NotMovable) as refused:
        moved(source, "x.py", {*MODULES, "spark.jobs"})
    assert str(refused.value).startswith(told)


def test_a_module_keeps_its_lines() -> None:
    for path in (ROOT / "gateway").rglob("*.py"):
        text = path.read_text()
        assert moved(text, str(path), ()).count("\n") == text.count("\n")


def test_the_public_name_is_the_same_module_in_a_checkout() -> None:
    import spark.jobs.audit
    import spark.source
    import tierlog.spark
    import tierlog.spark.jobs.audit
    from tierlog.spark import read

    assert tierlog.spark is spark
    assert tierlog.spark.jobs.audit is spark.jobs.audit
    assert read is spark.source.tierlog_read
    assert Path(spark.__file__).parent == ROOT / "spark"


def test_without_pyspark_the_reader_says_what_to_install() -> None:
    program = """
import sys

class WithoutPySpark:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pyspark":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, WithoutPySpark)
from tierlog.spark import read
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "ImportError: PySpark is not installed: pip install 'tierlog[spark]'"
