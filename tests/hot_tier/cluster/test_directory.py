"""A data directory is known again, and known to be another one when it is."""

from pathlib import Path

import pytest

from hot_tier.cluster.directory import (
    IDENTITY_FILE,
    boot_id,
    new_identity,
    read_identity,
    stopped_cleanly,
    write_identity,
)
from hot_tier.errors import CorruptLog


def test_a_directory_is_known_again_and_counts_its_runs(tmp_path: Path) -> None:
    first = read_identity(str(tmp_path)).next_run()
    write_identity(str(tmp_path), first)
    assert read_identity(str(tmp_path)) == first
    second = first.next_run()
    assert second.is_same_or_later(first)
    assert not first.is_same_or_later(second), "an older copy"
    assert not new_identity().is_same_or_later(first)


def test_an_emptied_directory_is_another_one(tmp_path: Path) -> None:
    first = read_identity(str(tmp_path)).next_run()
    write_identity(str(tmp_path), first)
    (tmp_path / IDENTITY_FILE).unlink()
    assert read_identity(str(tmp_path)).data_id != first.data_id


@pytest.mark.parametrize("content", [b"", b"one", b"one two", b"one 2 three", b"\xff 1"])
def test_a_damaged_name_is_not_made_up_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / IDENTITY_FILE).write_bytes(content)
    with pytest.raises(CorruptLog, match="which data directory"):
        read_identity(str(tmp_path))


def test_one_boot_is_the_same_boot() -> None:
    assert boot_id() == boot_id()


def test_only_a_marker_says_that_a_stop_was_clean(tmp_path: Path) -> None:
    assert not stopped_cleanly(str(tmp_path))
    (tmp_path / "clean-shutdown").touch()
    assert stopped_cleanly(str(tmp_path))
