"""Logs that miss something. What recovery finds is on the disk before recovery changes anything.

Recovery puts logs in order, so the next recovery finds nothing. If a start ended before the cluster knew of the loss,
the cluster would count on this broker for records that it no longer has. So the order is: look, write down, repair. An
entry stays until nobody counts on the log and it was begun anew, or until no other copy exists.
"""

import os
from collections.abc import Collection
from uuid import UUID

from hot_tier.errors import CorruptLog
from hot_tier.log import names
from hot_tier.log.files import replace_synced
from hot_tier.log.recovery_points import Key
from hot_tier.log.sealed_text import read_sealed_text, write_sealed_text


class Doubts:
    def __init__(self, data_dir: str) -> None:
        self.cut: set[Key] = set()
        """Their unsynced end was cut off."""
        self.damaged: set[Key] = set()
        """They miss something that was synced, or have gaps of which nobody can say that compaction left them."""
        self.emptied: set[Key] = set()
        """Those of them that miss all of it: they begin where the lost records ended."""
        self._path = os.path.join(data_dir, names.IN_DOUBT)
        self._kinds = {"cut": self.cut, "damaged": self.damaged, "emptied": self.emptied}
        try:
            with open(self._path, "rb") as file:
                lines = read_sealed_text(names.IN_DOUBT, file.read())
        except FileNotFoundError:
            return
        if lines is None:
            raise CorruptLog(
                "does not say which logs are in doubt",
                where=self._path,
                hint="start on an empty directory: others will fill it",
            )
        for kind, topic_id, partition in map(str.split, lines):
            self._kinds[kind].add((UUID(topic_id), int(partition)))

    def note(self, *, cut: Collection[Key], damaged: Collection[Key], emptied: Collection[Key]) -> None:
        """Writes it down. It is on the disk when this returns."""
        if cut or damaged or emptied:
            self.cut.update(cut)
            self.damaged.update(damaged)
            self.emptied.update(emptied)
            self._write()

    def settle(self, keys: Collection[Key]) -> None:
        if not keys or not any(kind.intersection(keys) for kind in self._kinds.values()):
            return
        for kind in self._kinds.values():
            kind.difference_update(keys)
        if any(self._kinds.values()):
            self._write()
        else:
            os.unlink(self._path)

    def _write(self) -> None:
        lines = [f"{kind} {topic_id} {at}" for kind, keys in self._kinds.items() for topic_id, at in sorted(keys)]
        replace_synced(self._path, write_sealed_text(names.IN_DOUBT, lines))
