"""What all logs of one data directory share: open files, threads that read, room, what is synced, what is missing."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from typing import Final

import structlog

from hot_tier.errors import DiskFull
from hot_tier.log import names
from hot_tier.log.damaged_logs import Doubts
from hot_tier.log.files import FilePool
from hot_tier.log.recovery_points import RecoveryPoints
from hot_tier.log.settings import LogSettings

_log = structlog.get_logger()

_READ_THREADS: Final = 4


class Disk:
    def __init__(self, data_dir: str, settings: LogSettings) -> None:
        self.settings = settings
        self.data_dir = os.path.abspath(data_dir)
        os.makedirs(os.path.join(self.data_dir, names.LOGS), exist_ok=True)
        self.files = FilePool(settings.max_open_files)
        self.readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="log-read")
        self.recovery_points = RecoveryPoints(os.path.join(self.data_dir, names.RECOVERY_POINTS))
        self.doubts = Doubts(self.data_dir)
        self.full = False
        self.free_bytes = 0
        self.size_bytes = 0
        self._doomed: list[tuple[int, str]] = []
        self.look_at_room()

    @property
    def logs_directory(self) -> str:
        return os.path.join(self.data_dir, names.LOGS)

    def look_at_room(self) -> None:
        status = os.statvfs(self.data_dir)
        self.free_bytes = status.f_bavail * status.f_frsize
        self.size_bytes = status.f_blocks * status.f_frsize
        full = self.free_bytes < self.settings.min_free_bytes
        if full != self.full:
            self.full = full
            _log.warning("disk is full" if full else "disk has room again", free_bytes=self.free_bytes)

    def check_room(self) -> None:
        if self.full:
            raise DiskFull(
                f"{self.free_bytes} bytes are free, {self.settings.min_free_bytes} are kept in reserve",
                where=self.data_dir,
                hint="free some room, lower retention, or add disk; writes resume by themselves",
            )

    def remove_later(self, path: str, due_ms: int) -> None:
        """Has the file or directory removed at the first `take_doomed` after `due_ms`."""
        heappush(self._doomed, (due_ms, path))

    def take_doomed(self, now_ms: int) -> list[str]:
        taken: list[str] = []
        while self._doomed and self._doomed[0][0] <= now_ms:
            taken.append(heappop(self._doomed)[1])
        return taken

    def close(self) -> None:
        self.readers.shutdown()
        self.files.close_all()
        self.recovery_points.close()


def remove(path: str) -> None:
    """Deletes a file or a directory, in a thread: freeing a gigabyte takes the kernel tens of milliseconds."""
    try:
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.error("cannot delete", path=path, error=str(error))
