"""Encrypts keys, values and headers of a segment with Parquet modular encryption, in the form that parquet-java has.

Each object has data keys of its own, one per column and one that signs the footer. They are wrapped by the master key
(`cold_tier.keys.master`) and stored in the footer. Offsets, times and the footer itself stay readable without a key;
the footer of an encrypted column has no statistics.

What others could change is proven: encrypted bytes by AES-GCM, bound to their file, row group, column and page; the
footer by its signature. The footer names the object (`OBJECT`), so that another object of the topic in its place is
found. It also has a digest of each row group's plain columns (`PLAIN_DIGESTS`), because Parquet leaves these unsigned.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from cold_tier.errors import CorruptObject, NotEncrypted
from cold_tier.format import key_client
from cold_tier.keys.master import MasterKeys, name_of
from cold_tier.manifest.model import SegmentEntry
from cold_tier.objects.store import Buffer
from hot_tier.errors import TierlogError
from hot_tier.ids import Offset
from hot_tier.record.columns import RecordColumns

MASTER_KEY: Final = "master_key"
"""In a file's metadata: the master key that wraps its data keys. Plain objects do not have it."""
OBJECT: Final = "object"
"""In an encrypted file's metadata: the key of the object."""
PLAIN_DIGESTS: Final = "plain_digests"
"""In an encrypted file's metadata: per row group, the SHA-256 of offsets, timestamps, timestamp types and leader
epochs, as hexadecimal digits.
"""

_COLUMNS: Final = ["key", "value", "headers.list.element.key", "headers.list.element.value"]
_KEY_BITS: Final = 256
_KEY_MATERIAL: Final = re.compile(rb'\{"keyMaterialType":"PKMT1"[^{}]*\}')


class Demand(NamedTuple):
    """What a topic demands, as its cluster's metadata has it. A bucket that others can write to does not say it."""

    from_offset: Offset
    """Segments that reach beyond it must be encrypted."""
    names: tuple[str, ...]
    """The keys that count. A key of somebody else would encrypt as well."""

    def met_by(self, segment: SegmentEntry) -> bool:
        """Returns whether a segment may be one of the topic's own, by what its entry says."""
        if segment.master_key:
            return name_of(segment.master_key) in self.names
        return not (segment.rows or segment.aside) or segment.end_offset <= self.from_offset

    def check(self, segment: SegmentEntry, where: str) -> None:
        """Raises NotEncrypted for a segment that the topic's own brokers did not write."""
        if self.met_by(segment):
            return
        if segment.master_key:
            what = f"it is encrypted with {segment.master_key!r}, which is no key of this topic"
        else:
            what = f"it is not encrypted, but since offset {self.from_offset} the topic's archive is"
        raise NotEncrypted(what, where=where, hint="somebody else has put it there; restore the object from a copy")


class Writing:
    """The encryption of one new object."""

    def __init__(self, keys: MasterKeys, master: str, key: str) -> None:
        self.described = {MASTER_KEY: master, OBJECT: key}
        client = key_client.KeyClient(keys, master)
        self._factory = pe.CryptoFactory(lambda _: client)
        self.properties = self._factory.file_encryption_properties(
            pe.KmsConnectionConfig(),
            pe.EncryptionConfiguration(
                footer_key=master,
                column_keys={master: _COLUMNS},
                plaintext_footer=True,
                double_wrapping=False,
                data_key_length_bits=_KEY_BITS,
            ),
        )

    def read_back(self, footer: Buffer) -> pq.FileMetaData:
        return pq.read_metadata(
            pa.BufferReader(footer),
            decryption_properties=self._factory.file_decryption_properties(pe.KmsConnectionConfig()),
        )


def master_key(metadata: pq.FileMetaData) -> str:
    """Returns the master key that a footer names, or an empty text for a plain file."""
    return (metadata.metadata or {}).get(f"tierlog.{MASTER_KEY}".encode(), b"").decode(errors="replace")


def with_keys(footer: Buffer, keys: MasterKeys, master: str, where: str) -> pq.FileMetaData:
    """Returns the metadata that decodes the rows of a file whose data keys `master` wraps. Proves its footer first.

    Raises KeyMissing without the key, and CorruptObject if the footer is not what its writer signed.
    """
    client = key_client.KeyClient(keys, master)
    factory = pe.CryptoFactory(lambda _: client)
    try:
        metadata = pq.read_metadata(
            pa.BufferReader(footer), decryption_properties=factory.file_decryption_properties(pe.KmsConnectionConfig())
        )
        said = metadata.metadata or {}
        # Arrow ends the process if it needs a key that it cannot get for the metadata of a column. So ask for all now.
        for wrapped, master in _wrapped_keys(footer):
            client.unwrap_key(wrapped, master)
    except TierlogError as error:
        raise type(error)(error.what, where=where, hint=error.hint) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        if client.failure is not None:
            raise type(client.failure)(client.failure.what, where=where, hint=client.failure.hint) from error
        raise CorruptObject(
            f"the signature of its footer cannot be proven: {error}",
            where=where,
            hint="somebody changed the object; restore it from a copy",
        ) from error
    if not where.endswith(f"/{said.get(f'tierlog.{OBJECT}'.encode(), b'').decode(errors='replace')}"):
        raise CorruptObject("this is another object than its name says", where=where, hint="restore it from a copy")
    return metadata


def plain_digest(columns: RecordColumns) -> str:
    """Returns the digest of the columns of a row group that are not encrypted."""
    digest = hashlib.sha256()
    for values, kind in (
        (columns.offsets, "<i8"),
        (columns.timestamps, "<i8"),
        (columns.timestamp_types, "<i4"),
        (columns.leader_epochs, "<i4"),
    ):
        digest.update(np.ascontiguousarray(values, dtype=kind).data)
    return digest.hexdigest()


def written_digests(digests: Sequence[str]) -> dict[str, str]:
    return {PLAIN_DIGESTS: ",".join(digests)}


def said_digests(metadata: pq.FileMetaData) -> list[str]:
    return (metadata.metadata or {}).get(f"tierlog.{PLAIN_DIGESTS}".encode(), b"").decode(errors="replace").split(",")


def _wrapped_keys(footer: Buffer) -> set[tuple[str, str]]:
    """Returns the wrapped data keys in a footer, each with its master key."""
    materials = map(orjson.loads, set(_KEY_MATERIAL.findall(bytes(footer))))
    return {(each["wrappedDEK"], each["masterKeyID"]) for each in materials}
