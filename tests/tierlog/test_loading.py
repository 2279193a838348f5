"""What the command line and an idle broker do without, and packages that are loaded when they are used."""

import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tierlog import loading

NO_PART_OF_HELP = {
    "aiohttp",
    "asyncio",
    "boto3",
    "cryptography",
    "llvmlite",
    "msgspec",
    "numba",
    "numpy",
    "orjson",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "rich",
    "sqlite3",
    "structlog",
    "tierlog.settings",
    "uvloop",
}
NO_PART_OF_AN_IDLE_BROKER = {
    "boto3",
    "botocore",
    "cffi",
    "cryptography",
    "cryptography.x509",
    "duckdb",
    "joserfc",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pycparser",
    "rich",
    "typer.rich_utils",
    "yaml",
}
PROGRAM = """
import sys
from tierlog.cli.app import run
code = run(sys.argv[1:])
from tierlog.loading import is_loaded
print("LOADED", *filter(is_loaded, list(sys.modules)))
sys.exit(code)
"""


def loaded_after(*arguments: str, stop_at: str = "") -> set[str]:
    """Returns the modules that a command has loaded, in a process of its own; `stop_at`: when it is told to end."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if stop_at and stop_at in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, process.stderr.read()
    begin, *names = lines[-1].split()
    assert begin == "LOADED"
    return set(names)


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["topic", "list", "--help"], {"pydantic"}),  # typer needs it for flags of a command.
    ],
    ids=str,
)
def test_help_loads_no_package_of_the_broker(words, needed):
    assert loaded_after(*words) & NO_PART_OF_HELP == needed


def test_an_idle_broker_has_not_loaded_what_it_does_not_use(tmp_path):
    addresses = ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    loaded = loaded_after("serve", "--data-dir", str(tmp_path / "data"), *addresses, stop_at="tierlog ready")
    assert {"numba", "aiohttp", "tierlog.broker"} <= loaded, "this is no broker"
    assert loaded & NO_PART_OF_AN_IDLE_BROKER == set()


def test_pyarrow_does_without_pandas():
    """It is installed here; where it is not hidden, this import is what a client waits for."""
    program = "import sys, pyarrow as pa; pa.array([1]); print(sys.modules.get('pandas') is not None)"
    hiding = "from tierlog.loading import quickly\nwith quickly(): pass\n"
    for first, expected in (("", "True"), (hiding, "False")):
        ran = subprocess.run([sys.executable, "-c", first + program], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == expected


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package that is deferred, with a part that counts how often it is loaded."""
    folder = tmp_path / "heavy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("import time\nfirst = 1\ntime.sleep(0.2)\nlast = 2\n")
    (folder / "part.py").write_text("from heavy_package import first\nimport heavy_package.other\nname = first\n")
    (folder / "other.py").write_text("import heavy_package.part as part\nname = 3\n")
    (folder / "broken.py").write_text("import heavy_package, os\nname = heavy_package.first\nos.not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(loading, "DEFERRED", ("heavy_package",))
    before = list(sys.meta_path)
    with loading.quickly():
        yield folder
    sys.meta_path[:] = before
    for name in [each for each in sys.modules if each.partition(".")[0] == "heavy_package"]:
        del sys.modules[name]
    gc.unfreeze()


def test_a_deferred_package_is_loaded_when_a_name_is_used(package):
    import heavy_package.part as part

    assert not loading.is_loaded("heavy_package") and not loading.is_loaded("heavy_package.part")
    assert part.name == 1
    assert loading.is_loaded("heavy_package") and loading.is_loaded("heavy_package.part")
    with pytest.raises(AttributeError, match="nothing_like_it"):
        part.nothing_like_it  # noqa: B018


def test_importing_a_name_is_a_use(package):
    from heavy_package.part import name

    assert name == 1


def test_threads_that_use_it_first_together_all_see_the_whole(package):
    import heavy_package

    seen: list[object] = []

    def use() -> None:
        seen.append(heavy_package.last)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [2] * 8


def test_a_package_that_fails_says_so_at_each_use(package):
    import heavy_package.broken as broken

    for _ in range(2):
        with pytest.raises(AttributeError, match="not_there"):
            broken.other_name  # noqa: B018
    assert not loading.is_loaded("heavy_package.broken")


def test_the_collector_rests_during_imports_alone():
    assert gc.isenabled()
    before = list(sys.meta_path)
    try:
        with pytest.raises(RuntimeError), loading.quickly():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled()
    finally:
        sys.meta_path[:] = before
        gc.unfreeze()
