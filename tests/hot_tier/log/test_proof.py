"""A segment's file is proved against its seal: whatever is changed in it, the proof fails."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hot_tier.log.config import TopicConfig
from hot_tier.log.index import UNKNOWN, Contents, read_seal
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.proof import NotWhole, prove_segment
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.record.batch import CRC_COVERED_FROM, iter_headers
from tests.golden.log.make import HERE
from tests.hot_tier.log.support import append, batch, open_log, release
from tests.hot_tier.log.test_compaction import compact

CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=150, min_cleanable_dirty_ratio=0.0)


def written(data_dir: Path, *, compacted: bool) -> PartitionLog:
    """Several sealed segments, of two leader epochs; compacted, most batches are gone or have lost records."""
    log = open_log(data_dir, replace(CONFIG, cleanup_policy=frozenset({"compact" if compacted else "delete"})))
    for number in range(24):
        data = batch((b"key %d" % (number // 2), b"value %d" % number), (b"key", b"second"))
        append(log, data, epoch=3 if number < 9 else 4)
    log.flush()
    if compacted:
        compact(log)
    return log


@pytest.fixture(params=[False, True], ids=["dense", "compacted"])
def segment(request: pytest.FixtureRequest, tmp_path: Path) -> SegmentInfo:
    log = written(tmp_path, compacted=request.param)
    info = log.sealed_segments()[0]
    release(log)
    assert info.dense is not request.param
    assert info.batches > 2
    return info


def refused(segment: SegmentInfo, content: bytes, *, crcs: bool = True) -> bool:
    Path(segment.path).write_bytes(content)
    try:
        prove_segment(segment.path, segment.contents, crcs=crcs)
    except NotWhole as error:
        assert segment.path in str(error)
        return True
    return False


def test_a_whole_segment_passes_and_its_seal_says_the_same(segment: SegmentInfo) -> None:
    prove_segment(segment.path, segment.contents)
    prove_segment(segment.path, segment.contents, crcs=False)
    seal = read_seal(Path(segment.path).with_suffix(".index").read_bytes())
    assert seal is not None
    assert seal.contents == segment.contents


def test_every_bit_of_every_head_counts(segment: SegmentInfo) -> None:
    content = Path(segment.path).read_bytes()
    for position, _ in iter_headers(content):
        for at in range(position, position + CRC_COVERED_FROM):
            for bit in range(8):
                changed = bytearray(content)
                changed[at] ^= 1 << bit
                assert refused(segment, changed, crcs=False), (position, at - position, bit)


def test_every_byte_of_every_batch_counts(segment: SegmentInfo) -> None:
    content = Path(segment.path).read_bytes()
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 0x04
        assert refused(segment, changed), at


def test_every_other_length_is_refused(segment: SegmentInfo) -> None:
    content = Path(segment.path).read_bytes()
    for length in range(len(content)):
        assert refused(segment, content[:length], crcs=False), length
    assert refused(segment, content + content[-1:])
    assert refused(segment, content + content)
    os.unlink(segment.path)
    with pytest.raises(NotWhole, match="missing"):
        prove_segment(segment.path, segment.contents)


def test_batches_that_are_left_out_doubled_or_exchanged_are_refused(segment: SegmentInfo) -> None:
    content = Path(segment.path).read_bytes()
    batches = [content[at : at + header.size] for at, header in iter_headers(content)]
    for at in range(len(batches)):
        assert refused(segment, b"".join(batches[:at] + batches[at + 1 :]))
        assert refused(segment, b"".join(batches[: at + 1] + batches[at:]))
        assert refused(segment, b"".join([*batches[:at], *batches[at + 1 :], batches[at]])) or at == len(batches) - 1


def test_another_segments_file_is_refused(tmp_path: Path) -> None:
    for compacted in (False, True):
        log = written(tmp_path / str(compacted), compacted=compacted)
        append(log, batch(b"more", b"of it", b"x" * 600))
        append(log, batch(b"more", b"of it"))
        log.flush()
        first, *_, last = log.sealed_segments()
        assert refused(first, Path(last.path).read_bytes())
        release(log)


def test_without_a_digest_order_and_length_are_proved(tmp_path: Path) -> None:
    shutil.copytree(HERE / "v1" / "whole", tmp_path, dirs_exist_ok=True)
    path = next(tmp_path.rglob("00000000000000000000.log"))
    seal = read_seal(path.with_suffix(".index").read_bytes())
    assert seal is not None
    assert seal.batches == UNKNOWN
    prove_segment(str(path), seal.contents)
    content = path.read_bytes()
    for changed in (content[:-1], content + b"\0", content[:8] + b"\x01" + content[9:], b"\x01" + content[1:]):
        path.write_bytes(changed)
        with pytest.raises(NotWhole):
            prove_segment(str(path), seal.contents)


def test_an_empty_segment_is_whole_only_without_offsets(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.touch()
    prove_segment(str(path), Contents(5, 5, 0, True, 0, 0))
    prove_segment(str(path), Contents(5, 9, 0, False, 0, 0))
    with pytest.raises(NotWhole, match="ends at offset 5"):
        prove_segment(str(path), Contents(5, 9, 0, True, 0, 0))
