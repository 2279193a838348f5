"""A disk in memory that loses at a power cut what was not synced, as POSIX allows. No FUSE in here.

What survives a cut:
- File contents up to the last fsync of the file. Each write and truncate after it survives, is lost, or is torn
  (only some of its 512-byte sectors arrive), each on its own: nothing keeps their order.
- Names are journalled in order: creations, renames and removals up to the last fsync of any directory survive, of the
  later ones a random prefix. Syncing a file does not make its name durable.
"""

import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    size: int


def apply(content: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Truncate):
        content[change.size :] = b""
        content.extend(bytes(change.size - len(content)))
    else:
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(change.data)] = change.data


class File:
    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self._durable = bytearray(content)
        self._pending: list[Write | Truncate] = []

    def change(self, change: Write | Truncate) -> None:
        apply(self.content, change)
        self._pending.append(change)

    def sync(self) -> None:
        for change in self._pending:
            apply(self._durable, change)
        self._pending.clear()

    def after_power_cut(self, source: random.Random) -> bytes:
        content = bytearray(self._durable)
        survival = source.choice((0.0, 0.5, 0.9, 1.0))
        for change in self._pending:
            if source.random() >= survival:
                continue
            if isinstance(change, Write) and source.random() < 0.3:
                for piece in sectors(change):
                    if source.random() < 0.5:
                        apply(content, piece)
            else:
                apply(content, change)
        return bytes(content)


def sectors(write: Write) -> Iterator[Write]:
    """The parts of a write that fall into one disk sector each."""
    position, end = write.offset, write.offset + len(write.data)
    while position < end:
        stop = min(end, position - position % SECTOR + SECTOR)
        yield Write(position, write.data[position - write.offset : stop - write.offset])
        position = stop


Node = Union[File, "Directory"]


class Directory:
    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


@dataclass(frozen=True, slots=True)
class NameChange:
    """One atomic change of names: entries set, or removed where the node is None."""

    changes: tuple[tuple[Directory, str, Node | None], ...]


def set_entry(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


@dataclass(slots=True)
class Disk:
    root: Directory = field(default_factory=Directory)
    journal: list[NameChange] = field(default_factory=list)

    def find(self, path: str) -> Node:
        node: Node = self.root
        for name in path.strip("/").split("/") if path.strip("/") else ():
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, path)
            if name not in node.entries:
                raise FileNotFoundError(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        directory = self.find(above)
        if not isinstance(directory, Directory):
            raise NotADirectoryError(errno.ENOTDIR, above)
        return directory, name

    def rename_all(self, *changes: tuple[Directory, str, Node | None]) -> None:
        for directory, name, node in changes:
            set_entry(directory.entries, name, node)
        self.journal.append(NameChange(changes))

    def add(self, path: str, node: Node) -> None:
        directory, name = self.parent(path)
        if name in directory.entries:
            raise FileExistsError(errno.EEXIST, path)
        self.rename_all((directory, name, node))

    def remove(self, path: str) -> None:
        directory, name = self.parent(path)
        if name not in directory.entries:
            raise FileNotFoundError(errno.ENOENT, path)
        self.rename_all((directory, name, None))

    def rename(self, old: str, new: str) -> None:
        node = self.find(old)
        self.rename_all((*self.parent(old), None), (*self.parent(new), node))

    def sync_names(self) -> None:
        """fsync of a directory: the journal up to here is durable."""
        self._commit(len(self.journal))

    def _commit(self, count: int) -> None:
        for entry in self.journal[:count]:
            for directory, name, node in entry.changes:
                set_entry(directory.durable, name, node)
        del self.journal[:count]

    def power_cut(self, source: random.Random) -> dict[str, bytes | None]:
        """What is found after the cut: path → content, None for a directory. The disk is used up by it."""
        self._commit(source.choice((0, len(self.journal), source.randint(0, len(self.journal)))))
        found: dict[str, bytes | None] = {}

        def walk(prefix: str, directory: Directory) -> None:
            for name, node in directory.durable.items():
                path = f"{prefix}/{name}"
                if isinstance(node, Directory):
                    found[path] = None
                    walk(path, node)
                else:
                    found[path] = node.after_power_cut(source)

        walk("", self.root)
        return found
