"""Manifest snapshots, pages and proposals as bytes, version 1. docs/formats/manifest.md and proposal.md describe them.

    0   4   magic     "TLMS" a snapshot, "TLMP" a page, "TLPR" a proposal
    4   2   version   1
    6   2   zero
    8   4   size of the body
    12  4   CRC-32C of the body
    16  …   body: zstd of a JSON document; segments are columns, so that a thousand of them pack and parse well

Integers are big-endian. A reader ignores fields that it does not know, and refuses a version that it does not know.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields
from itertools import starmap
from typing import Any, Final, TypeVar
from uuid import UUID

import orjson
import zstandard

from cold_tier.errors import CorruptManifest
from cold_tier.layout import PartitionLayout, SegmentName, Version, parse_stem
from cold_tier.manifest.model import Aside, EpochStart, Lost, Owner, Page, Removed, SegmentEntry, Snapshot
from cold_tier.manifest.replacement import Proposal, Replacement
from cold_tier.objects.store import Buffer
from hot_tier.ids import LeaderEpoch, Offset, PartitionId
from hot_tier.record.crc import crc32c

T = TypeVar("T")

_HEADER: Final = struct.Struct(">4sHHII")
_VERSION: Final = 1
_SNAPSHOT: Final = b"TLMS"
_PAGE: Final = b"TLMP"
_PROPOSAL: Final = b"TLPR"
MAX_BODY_BYTES: Final = 64 << 20

_PLAIN: Final = tuple(f.name for f in fields(SegmentEntry) if f.name not in ("name", "epochs", "master_key", "aside"))
_PAGE_FIELDS: Final = tuple(f.name for f in fields(Page))
_PAGE_ASIDE: Final = ("aside_bytes", "aside_max_timestamp_ms")
"""Fields of a page of which a segment has batches aside. Other pages look as in 0.1.0."""
_ASIDE_FIELDS: Final = len(fields(Aside))
_OWNER_FIELDS: Final = tuple(f.name for f in fields(Owner))


def write_snapshot(snapshot: Snapshot) -> bytes:
    return _seal(
        _SNAPSHOT,
        {
            "topic": snapshot.topic,
            "topic_id": str(snapshot.topic_id),
            "partition": snapshot.partition,
            "leader_epoch": snapshot.version.leader_epoch,
            "sequence": snapshot.version.sequence,
            "nonce": snapshot.nonce,
            "published_ms": snapshot.published_ms,
            "log_start_offset": snapshot.log_start_offset,
            "pages": list(map(_page_fields, snapshot.pages)),
            "segments": _columns(snapshot.tail),
            "removed": [[gone.key, gone.removed_ms] for gone in snapshot.removed],
            "owner": None if snapshot.owner is None else dict(zip(_OWNER_FIELDS, astuple(snapshot.owner), strict=True)),
            "lost": [astuple(each) for each in snapshot.lost],
        },
    )


def read_snapshot(data: Buffer, where: str) -> Snapshot:
    def parse(body: dict[str, Any]) -> Snapshot:
        return Snapshot(
            _text(body["topic"]),
            UUID(body["topic_id"]),
            PartitionId(_int(body["partition"])),
            Version(LeaderEpoch(_int(body["leader_epoch"])), _int(body["sequence"])),
            _text(body["nonce"]),
            _int(body["published_ms"]),
            Offset(_int(body["log_start_offset"])),
            tuple(map(_page, body["pages"])),
            _segments(body["segments"]),
            tuple(Removed(_text(key), _int(removed_ms)) for key, removed_ms in body["removed"]),
            _owner(body.get("owner")),
            tuple(Lost(Offset(_int(start)), Offset(_int(end)), _int(ms)) for start, end, ms in body.get("lost", ())),
        )

    return _open(_SNAPSHOT, data, where, parse)


def write_page(segments: Sequence[SegmentEntry]) -> bytes:
    return _seal(_PAGE, {"segments": _columns(segments)})


def read_page(data: Buffer, where: str) -> tuple[SegmentEntry, ...]:
    return _open(_PAGE, data, where, lambda body: _segments(body["segments"]))


def write_proposal(proposal: Proposal) -> bytes:
    return _seal(
        _PROPOSAL,
        {
            "topic": proposal.layout.topic,
            "topic_id": str(proposal.layout.topic_id),
            "partition": proposal.layout.partition,
            "proposed_ms": proposal.proposed_ms,
            "replacements": [
                {"old": [name.stem for name in each.old], "segments": _columns(each.new)}
                for each in proposal.replacements
            ],
        },
    )


def read_proposal(data: Buffer, where: str) -> Proposal:
    def parse(body: dict[str, Any]) -> Proposal:
        return Proposal(
            PartitionLayout(_text(body["topic"]), UUID(body["topic_id"]), PartitionId(_int(body["partition"]))),
            _int(body["proposed_ms"]),
            tuple(
                Replacement(tuple(map(_stem, each["old"])), _segments(each["segments"]))
                for each in body["replacements"]
            ),
        )

    proposal = _open(_PROPOSAL, data, where, parse)
    if not all(each.old and each.new for each in proposal.replacements):
        raise CorruptManifest("a replacement in this proposal has no old or no new segments", where=where)
    return proposal


def _columns(segments: Sequence[SegmentEntry]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [getattr(s, name) for s in segments] for name in _PLAIN}
    columns["base_offset"] = [s.name.base_offset for s in segments]
    columns["leader_epoch"] = [s.name.leader_epoch for s in segments]
    columns["uuid"] = [s.name.uuid for s in segments]
    columns["epochs"] = [[[e.leader_epoch, e.start_offset] for e in s.epochs] for s in segments]
    if any(s.master_key for s in segments):
        columns["master_key"] = [s.master_key for s in segments]
    if any(s.aside for s in segments):
        columns["aside"] = [None if s.aside is None else astuple(s.aside) for s in segments]
    return columns


def _segments(columns: dict[str, list[Any]]) -> tuple[SegmentEntry, ...]:
    """Parses whole columns: Spark plans over 100,000 segments, and a call per number would take most of the time."""
    named = (_all(int, columns["base_offset"]), _all(int, columns["leader_epoch"]), _all(str, columns["uuid"]))
    names = list(starmap(SegmentName, zip(*named, strict=True)))
    plain = [_all(int, columns[name]) for name in _PLAIN]
    known: dict[tuple[tuple[Any, ...], ...], tuple[EpochStart, ...]] = {}
    epochs = []
    for pairs in columns["epochs"]:
        key = tuple(map(tuple, pairs))
        if key not in known:
            known[key] = tuple(EpochStart(LeaderEpoch(_int(epoch)), Offset(_int(start))) for epoch, start in key)
        epochs.append(known[key])
    keys = _all(str, columns["master_key"]) if "master_key" in columns else [""] * len(names)
    aside = list(map(_aside, columns["aside"])) if "aside" in columns else [None] * len(names)
    rows: Iterable[tuple[Any, ...]] = zip(names, *plain, epochs, keys, aside, strict=True)
    return tuple(starmap(SegmentEntry, rows))


def _aside(values: list[Any] | None) -> Aside | None:
    if values is None:
        return None
    if len(values) < _ASIDE_FIELDS:
        raise ValueError(f"{values!r} does not describe an object")
    return Aside(*map(_int, values[:_ASIDE_FIELDS]))


def _stem(text: Any) -> SegmentName:
    name = parse_stem(_text(text))
    if name is None:
        raise ValueError(f"{text!r} is not the name of a segment")
    return name


def _owner(fields: dict[str, Any] | None) -> Owner | None:
    return None if fields is None else Owner(*(_text(fields[name]) for name in _OWNER_FIELDS))


def _page_fields(page: Page) -> dict[str, Any]:
    found = dict(zip(_PAGE_FIELDS, astuple(page), strict=True))
    return found if page.aside_bytes else {name: value for name, value in found.items() if name not in _PAGE_ASIDE}


def _page(fields: dict[str, Any]) -> Page:
    names = [name for name in _PAGE_FIELDS[1:] if name not in _PAGE_ASIDE or name in fields]
    return Page(_text(fields["uuid"]), *(_int(fields[name]) for name in names))  # type: ignore[arg-type]


def _all(kind: type[T], values: list[Any]) -> list[T]:
    if set(map(type, values)) - {kind}:
        raise TypeError(f"a column holds a value that is not {kind.__name__}")
    return values


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is not a text")
    return value


def _seal(magic: bytes, body: dict[str, Any]) -> bytes:
    packed = zstandard.compress(orjson.dumps(body))
    return _HEADER.pack(magic, _VERSION, 0, len(packed), crc32c(packed)) + packed


def _open(magic: bytes, data: Buffer, where: str, parse: Callable[[dict[str, Any]], T]) -> T:
    view = memoryview(data)
    if len(view) < _HEADER.size:
        raise CorruptManifest("too short to be a manifest", where=where)
    found, version, zero, size, crc = _HEADER.unpack_from(view)
    packed = view[_HEADER.size :]
    if found != magic or zero or len(packed) != size or crc32c(packed) != crc:
        raise CorruptManifest(
            "damaged: its header, length or checksum does not match",
            where=where,
            hint="restore this object from a copy; `tierlog archive verify` lists everything that is damaged",
        )
    if version != _VERSION:
        raise CorruptManifest(
            f"it has format version {version}, this program reads {_VERSION}", where=where, hint="upgrade"
        )
    try:
        # A zstd frame that states its size is decompressed to that size, whatever limit is given here. So check the
        # size first.
        if zstandard.frame_content_size(packed) > MAX_BODY_BYTES:
            raise ValueError("it is larger than any manifest")
        body = zstandard.ZstdDecompressor().decompress(packed, max_output_size=MAX_BODY_BYTES)
        return parse(orjson.loads(body))
    except (zstandard.ZstdError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptManifest(f"cannot be read: {error}", where=where) from error
