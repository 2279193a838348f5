"""A directory of a newer version is refused; after a run of 0.1.0 what it does not keep up to date is not believed."""

from pathlib import Path

import pytest

from hot_tier.cluster.directory import read_identity, write_identity
from hot_tier.cluster.directory_format import FORMAT_FILE, begin_run, check_format
from hot_tier.errors import CorruptLog, UnknownFormat
from hot_tier.log.log_start import LogStart, read_log_start, write_log_start
from hot_tier.log.scan import ANYWHERE
from hot_tier.log.sealed_text import write_sealed_text

START = write_log_start(5, 3, 0)


def log_start(data_dir: Path) -> Path:
    path = data_dir / "logs" / "orders.00000000000000000000000000000007" / "0" / "log-start"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    check_format(str(tmp_path))
    (tmp_path / FORMAT_FILE).write_bytes(write_sealed_text("format", ["2", "some 1", "more"]))
    with pytest.raises(UnknownFormat, match="in format 2, this version knows 1"):
        check_format(str(tmp_path))


@pytest.mark.parametrize(
    "content", [b"", b"2", write_sealed_text("format", []), write_sealed_text("format", ["x", ""])]
)
def test_a_damaged_format_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FORMAT_FILE).write_bytes(content)
    with pytest.raises(CorruptLog, match="which format"):
        check_format(str(tmp_path))


def test_runs_of_this_version_keep_what_they_know(tmp_path: Path) -> None:
    identity = read_identity(str(tmp_path))
    for _ in range(3):
        identity = identity.next_run()
        begin_run(str(tmp_path), identity)
        assert read_identity(str(tmp_path)) == identity
        log_start(tmp_path).write_bytes(START)
    begin_run(str(tmp_path), identity)
    assert log_start(tmp_path).read_bytes() == START


def test_a_run_of_an_older_version_is_noticed(tmp_path: Path) -> None:
    identity = read_identity(str(tmp_path)).next_run()
    begin_run(str(tmp_path), identity)
    log_start(tmp_path).write_bytes(START)
    write_identity(str(tmp_path), identity.next_run())  # all that 0.1.0 writes of a run
    begin_run(str(tmp_path), identity.next_run().next_run())
    assert read_log_start(log_start(tmp_path).read_bytes()) == LogStart(5, None, ANYWHERE)


def test_a_start_that_is_cut_off_only_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = read_identity(str(tmp_path)).next_run()
    begin_run(str(tmp_path), identity)
    log_start(tmp_path).write_bytes(START)
    with monkeypatch.context() as patched:
        patched.setattr("hot_tier.cluster.directory_format.FORMAT_FILE", "no/such/directory")
        with pytest.raises(OSError):
            begin_run(str(tmp_path), identity.next_run())
    check_format(str(tmp_path))
    begin_run(str(tmp_path), identity.next_run().next_run())
    assert read_log_start(log_start(tmp_path).read_bytes()).offset == 5
