"""The two index files of a segment, read and written together, and an index made from walked batches."""

from hot_tier.log import names
from hot_tier.log.index import Seal, SparseIndex, read_index, read_time_index, write_index, write_time_index
from hot_tier.log.scan import BASE_OFFSET, MAX_TIMESTAMP, POSITION, SIZE, Rows


def index_contents(stem: str, index: SparseIndex, seal: Seal) -> list[tuple[str, bytes]]:
    """Returns path and content of both files, the seal last."""
    return [
        (stem + names.TIME_INDEX, write_time_index(index, seal)),
        (stem + names.INDEX, write_index(index, seal)),
    ]


def read_index_files(stem: str, base_offset: int, end_offset: int, size: int) -> SparseIndex | None:
    """Returns the index of a segment that has these bounds, or None if a file is missing, damaged or of another
    state."""
    try:
        with open(stem + names.INDEX, "rb") as file:
            found = read_index(file.read())
        if found is None or found[0][:3] != (base_offset, end_offset, size):
            return None
        seal, index = found
        with open(stem + names.TIME_INDEX, "rb") as file:
            return index if read_time_index(file.read(), seal, index) else None
    except FileNotFoundError:
        return None


def note_rows(index: SparseIndex, rows: Rows, base_offset: int, latest: int, interval: int) -> int:
    """Indexes walked batches. Takes and returns the greatest timestamp so far."""
    for row in rows.tolist():
        index.note(row[BASE_OFFSET] - base_offset, row[POSITION], row[SIZE], latest, interval)
        latest = max(latest, row[MAX_TIMESTAMP])
    return latest
