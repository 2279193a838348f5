"""The file under `hot_tier.cluster.sqlite`: rows with checksums, and one digest over all of them.

Every method but the constructor runs in the store's thread. docs/formats/metadata.md describes the tables.

- Each row has a checksum over all that is in it. The counter row has the number of rows and the XOR of their checksums,
  with a checksum of its own. A bit that flipped, a row that vanished and one that came back are all seen.
- A commit is in the database file itself before it is answered, and the next one begins the write-ahead log anew.
  SQLite ends a damaged log where the damage begins, without a word: nothing that was answered may depend on it.
- Version 1 answered before that, so all commits in its log must be readable (`write_ahead_log`).
- `open` checks everything first. Where something is wrong it raises CorruptMetadata and writes nothing.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import blake2b
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson
import structlog

from hot_tier.cluster.store import ABSENT, Compare, Delete, Event, KeyValue, LeaseId, Put, Range, Revision
from hot_tier.cluster.write_ahead_log import leaves_out_commits
from hot_tier.errors import CorruptMetadata

Operation = Callable[["Database"], Any]
Changes = list[tuple[Revision, tuple[Event, ...]]]

_SCHEMA: Final = (
    "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, lease INTEGER,"
    " checksum INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX entries_by_lease ON entries (lease) WHERE lease IS NOT NULL",
    "CREATE TABLE counter (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL,"
    " entries INTEGER NOT NULL, digest INTEGER NOT NULL, checksum INTEGER NOT NULL)",
)
_COLUMNS_OF_VERSION_1: Final = ["key", "value", "revision", "lease"]

# These errors say nothing about the content of the file: another process has it open, or the machine does not let us.
_NOT_DAMAGE: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
}
RECOVER: Final = (
    "put metadata.db back from a copy of this directory; without one, start on an empty directory and bring archived "
    "topics back with `tierlog archive restore`. Nothing in the directory has been touched"
)
_TAKE_THE_REST: Final = (
    "put metadata.db and metadata.db-wal back from a copy of this directory; or start and stop it once with version "
    "0.1, which takes what is left. Nothing in the directory has been touched"
)

_log = structlog.get_logger()


class Database:
    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection
        self._changes: Changes = []
        self._entries = self._digest = 0
        self.revision = ABSENT

    def open(self) -> None:
        """Raises CorruptMetadata if the content cannot be trusted, sqlite3.Error if the file cannot be used."""
        self._check_log()
        self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN EXCLUSIVE")
            self._check()
            self._connection.execute("COMMIT")
            self.commit([lambda database: database.drop_leased(None)])
            self._checkpoint()
        except CorruptMetadata:
            self._connection.close()
            raise
        except UnicodeDecodeError as error:  # an error of SQLite's that quotes damaged text
            self._connection.close()
            raise self._damaged(error.object.decode(errors="replace")) from None
        except sqlite3.Error as error:
            self._connection.close()
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            # One bit of the file can make SQLite take it for read-only.
            readonly = code == sqlite3.SQLITE_READONLY and not os.access(self._path, os.W_OK)
            if code in _NOT_DAMAGE or readonly:
                raise
            raise self._damaged(str(error)) from None

    def close(self) -> None:
        self._connection.close()

    def commit(self, operations: Sequence[Operation]) -> tuple[list[Any], Changes]:
        """Runs all operations in one SQLite transaction. On an error nothing has happened."""
        self._changes = []
        before = self.revision, self._entries, self._digest
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            answers = [operation(self) for operation in operations]
            if self.revision != before[0]:
                self._write_counter()
            self._connection.execute("COMMIT")
        except BaseException:
            self.revision, self._entries, self._digest = before
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        if self._changes:
            self._checkpoint()
        return answers, self._changes

    def get(self, key: str) -> KeyValue | None:
        row = self._connection.execute("SELECT * FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._checked(row)

    def range(self, prefix: str) -> Range:
        # Keys are ASCII: U+0080 sorts after whatever may follow the prefix in one of them.
        rows = self._connection.execute(
            "SELECT * FROM entries WHERE key >= ? AND key < ? ORDER BY key", (prefix, prefix + "\x80")
        )
        return Range(tuple(self._checked(row) for row in rows), self.revision)

    def transact(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Revision | None:
        for compare in compares:
            row = self._connection.execute("SELECT revision FROM entries WHERE key = ?", (compare.key,)).fetchone()
            if (ABSENT if row is None else row[0]) != compare.revision:
                return None
        revision = Revision(self.revision + 1)
        events = []
        for write in writes:
            gone = self._delete("key = ?", (write.key,))
            if isinstance(write, Put):
                self._insert(write.key, write.value, revision, write.lease)
                # A copy: bytes that orjson wrote keep its buffer of 4 KB, and the history has thousands of them.
                events.append(Event(write.key, bytes(memoryview(write.value)), revision))
            elif gone:
                events.append(Event(write.key, None, revision))
        self._record(events)
        return self.revision

    def drop_leased(self, lease: LeaseId | None) -> None:
        """Deletes the keys of this lease, or of every lease if it is None."""
        keys = self._delete("lease IS NOT NULL") if lease is None else self._delete("lease = ?", (lease,))
        self._record([Event(key, None, Revision(self.revision + 1)) for key in sorted(keys)])

    def _insert(self, key: str, value: bytes, revision: int, lease: int | None) -> None:
        checksum = _checksum(key, value, revision, lease)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", (key, value, revision, lease, checksum))
        self._entries += 1
        self._digest ^= checksum

    def _delete(self, condition: str, values: Sequence[object] = ()) -> list[str]:
        """Deletes these keys and returns those that existed."""
        rows = self._connection.execute(f"DELETE FROM entries WHERE {condition} RETURNING key, checksum", values)
        keys = []
        for key, checksum in rows.fetchall():
            keys.append(key)
            self._entries -= 1
            self._digest ^= checksum
        return keys

    def _record(self, events: list[Event]) -> None:
        if events:
            self.revision = events[0].revision
            self._changes.append((self.revision, tuple(events)))

    def _write_counter(self) -> None:
        numbers = (self.revision, self._entries, self._digest)
        self._connection.execute("INSERT OR REPLACE INTO counter VALUES (0, ?, ?, ?, ?)", (*numbers, _hash(*numbers)))

    def _checkpoint(self) -> None:
        """Moves the write-ahead log into the file. If this fails the commit holds all the same, and the next commit
        tries again."""
        try:
            self._connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        except sqlite3.Error as error:
            _log.error("metadata stays in the write-ahead log", path=self._path, error=str(error))

    # Checks

    def _check_log(self) -> None:
        """Raises CorruptMetadata if SQLite would ignore a part of the write-ahead log, and then remove it."""
        log = self._path + "-wal"
        if not os.path.exists(log):
            return
        with open(log, "rb") as file:
            if not leaves_out_commits(file.read()):
                return
        with TemporaryDirectory() as folder:
            copy = shutil.copy(self._path, folder)
            shutil.copy(log, folder)
            with closing(sqlite3.connect(copy)) as connection:
                try:
                    columns = [row[1] for row in connection.execute("PRAGMA table_info(entries)")]
                except sqlite3.DatabaseError:
                    return
        if columns in ([], _COLUMNS_OF_VERSION_1):
            raise self._damaged("its write-ahead log has changes that SQLite cannot read any more", _TAKE_THE_REST)

    def _check(self) -> None:
        """Checks everything in the file. A file of version 1 and an empty file get the tables of this version."""
        problems = self._connection.execute("PRAGMA integrity_check").fetchall()
        if problems != [("ok",)]:
            raise self._damaged(str(problems[0][0]).splitlines()[-1] if problems else "it cannot be checked")
        tables = [row[0] for row in self._connection.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL")]
        columns = [row[1] for row in self._connection.execute("PRAGMA table_info(entries)")]
        if not tables:
            self._make_tables()
        elif columns == _COLUMNS_OF_VERSION_1:
            self._upgrade()
        elif sorted(tables) == sorted(_SCHEMA):
            self._check_rows()
        else:
            raise self._damaged("its tables are not those of this version")

    def _check_rows(self) -> None:
        counter = self._connection.execute("SELECT revision, entries, digest, checksum FROM counter").fetchone()
        if counter is None or _hash(*counter[:3]) != counter[3]:
            raise self._damaged("the checksum of the counter is wrong")
        self.revision, self._entries, self._digest = counter[:3]
        entries = digest = 0
        for row in self._connection.execute("SELECT * FROM entries"):
            self._checked(row)
            entries += 1
            digest ^= row[4]
        if (entries, digest) != (self._entries, self._digest):
            raise self._damaged(f"{self._entries} values were written, and {entries} are there, or other ones")

    def _checked(self, row: tuple[Any, ...]) -> KeyValue:
        key, value, revision, lease, checksum = row
        if not isinstance(value, bytes) or _checksum(key, value, revision, lease) != checksum:
            raise self._damaged(f"the checksum of {key!r} is wrong")
        return KeyValue(key, value, revision)

    def _make_tables(self) -> None:
        for statement in _SCHEMA:
            self._connection.execute(statement)
        self._write_counter()

    def _upgrade(self) -> None:
        """Takes over a file of version 1. It has no checksums, so keys and values are accepted if they can be read."""
        rows = self._connection.execute("SELECT key, value, revision, lease FROM entries").fetchall()
        counter = self._connection.execute("SELECT revision FROM counter").fetchone()
        types = {tuple(map(type, (*row[:3], row[3] or 0))) for row in rows}
        if not types <= {(str, bytes, int, int)} or counter is None or type(counter[0]) is not int:
            raise self._damaged("a value is not of the type it should be")
        for key, value, *_ in rows:
            try:
                orjson.loads(value)
            except orjson.JSONDecodeError:
                raise self._damaged(f"the value of {key!r} is not JSON") from None
        self._connection.execute("DROP TABLE entries")
        self._connection.execute("DROP TABLE counter")
        self.revision = Revision(counter[0])
        self._make_tables()
        for row in rows:
            self._insert(*row)
        self._write_counter()

    def _damaged(self, what: str, hint: str = RECOVER) -> CorruptMetadata:
        return CorruptMetadata(f"the metadata of this node is damaged: {what}", where=self._path, hint=hint)


def _checksum(key: str, value: bytes, revision: int, lease: int | None) -> int:
    return _hash(key, revision, lease, value)


def _hash(*parts: object) -> int:
    """Returns a hash of 64 bits, signed as SQLite stores integers."""
    content = b"".join(part if isinstance(part, bytes) else f"{part}\0".encode() for part in parts)
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little", signed=True)
