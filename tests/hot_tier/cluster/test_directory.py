"""A data directory is known again, and known to be another one when it is."""

from pathlib import Path
from uuid import UUID

import pytest

from hot_tier.cluster.directory import (
    DOUBTS_FILE,
    IDENTITY_FILE,
    Doubts,
    boot_id,
    new_identity,
    note_doubts,
    read_identity,
    settle_doubts,
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


def test_doubts_are_kept_until_they_are_settled(tmp_path: Path) -> None:
    one, two, three = ((UUID(int=7), partition) for partition in range(3))
    first = Doubts({one}, {two}, {two})
    assert note_doubts(str(tmp_path), first) == first
    assert note_doubts(str(tmp_path), Doubts(set(), {three}, set())) == Doubts({one}, {two, three}, {two})
    settle_doubts(str(tmp_path))
    assert note_doubts(str(tmp_path), Doubts(set(), set(), set())) == Doubts(set(), set(), set())
    assert not (tmp_path / DOUBTS_FILE).exists()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[[]]", b"[[], [], [7]]", b'[[], [], [["7", 0]]]', b"[[], [], [[7, 0]]]"]
)
def test_damaged_doubts_are_not_taken_for_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / DOUBTS_FILE).write_bytes(content)
    with pytest.raises(CorruptLog, match="in doubt"):
        note_doubts(str(tmp_path), Doubts(set(), set(), set()))
