"""Golden objects of an encrypted topic: `python -m tests.golden.encrypted.make` writes those that are missing.

Data keys are random, so these bytes are never made twice: they are written once and then only read. `golden.keys` is
the key file that reads them. Git keeps no mode 0600, so a test copies it first.
"""

import dataclasses
import tempfile
from pathlib import Path

from cold_tier.format.encryption import Writing
from cold_tier.format.index import write_index
from cold_tier.format.write import write_segment
from cold_tier.keys.file import new_key, rotate_key
from cold_tier.keys.master import MasterKeys
from cold_tier.layout import SegmentName
from cold_tier.manifest.codec import write_snapshot
from cold_tier.manifest.model import EpochStart, Snapshot
from hot_tier.record.batch import assign
from hot_tier.record.columns import encode_records, iter_columns
from tests.golden.bucket.make import LAYOUT, RECORDS, TOPIC_ID, owned, segment, set_aside

HERE = Path(__file__).parent
NAME = SegmentName(40, 3, "5e" * 16)
OBJECT = LAYOUT.rows(NAME)


def snapshot() -> Snapshot:
    """A manifest with a plain segment and an encrypted one."""
    sealed = dataclasses.replace(segment(30, 45), master_key="golden/2")
    return dataclasses.replace(owned(), tail=(segment(20, 30), sealed), topic_id=TOPIC_ID)


def written() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        keys_file = f"{folder}/golden.keys"
        new_key(keys_file, "golden")
        rotate_key(keys_file, "golden")
        keys = MasterKeys(keys_file)
        log = bytearray()
        for number, record in enumerate(RECORDS):
            batch = encode_records([record])
            assign(batch, 40 + number, 3)
            log += batch
        made = write_segment(
            f"{folder}/rows", iter_columns(bytes(log), chunk_bytes=1), 40, 45, (EpochStart(3, 40),), b"producers",
            {"topic": "orders", "complete": "true"}, zstd_level=3,
            encryption=Writing(keys, keys.newest("golden"), OBJECT),
        )  # fmt: skip
        return {
            "golden.keys": Path(keys_file).read_bytes(),
            "rows.parquet": Path(f"{folder}/rows").read_bytes(),
            "rows.index": write_index(made.index),
            "with-master-key.manifest": write_snapshot(snapshot()),
        }


def secret_aside() -> bytes:
    """Batches aside under the golden keys, which are there already."""
    with tempfile.TemporaryDirectory() as folder:
        keys_file = Path(folder) / "golden.keys"
        keys_file.write_bytes((HERE / "golden.keys").read_bytes())
        keys_file.chmod(0o600)
        keys = MasterKeys(str(keys_file))
        return set_aside(folder, keys, keys.newest("golden"))[0]


if __name__ == "__main__":
    missing = {name: data for name, data in written().items() if not (HERE / name).exists()}
    assert len(missing) in (0, 1, 4), "rows, index and keys belong together: delete all three to make them anew"
    for name, data in missing.items():
        (HERE / name).write_bytes(data)
    if not (HERE / "secret.aside").exists():
        (HERE / "secret.aside").write_bytes(secret_aside())
