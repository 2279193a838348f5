"""The faulty disk as a FUSE mount in a process of its own, and how a test handles it.

`python -m tests.chaos.faulty_mount MOUNT PLATTER SEED` serves the files below PLATTER from memory. Making the directory
`.cut` in the mount cuts the power: what survives replaces PLATTER, and the process is gone at once, so every later
call of whoever used the mount fails.
"""

import errno
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.process import wait_for

from .faulty_disk import Directory, Disk, File, Truncate, Write

CUT = ".cut"


class FaultyMount:
    """Mounts, cuts the power, mounts again what is left."""

    def __init__(self, directory: Path, source: random.Random) -> None:
        self.path = directory / "mount"
        self._platter = directory / "platter"
        self._source = source
        self._process: subprocess.Popen[bytes] | None = None
        self.path.mkdir()
        self._platter.mkdir()

    @staticmethod
    def why_not() -> str | None:
        """The reason why this machine has no FUSE, or None."""
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            return "no access to /dev/fuse"
        if shutil.which("fusermount3") is None:
            return "no fusermount3 (apt install fuse3)"
        return None

    def mount(self) -> None:
        module = "tests.chaos.faulty_mount"
        seed = str(self._source.randrange(1 << 30))
        command = [sys.executable, "-W", "ignore", "-m", module, str(self.path), str(self._platter), seed]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        wait_for(self.path.is_mount, "the faulty disk to be mounted", 20)

    def cut_power(self) -> None:
        assert self._process is not None
        try:
            os.mkdir(self.path / CUT)
        except OSError:
            pass
        self._process.wait(30)
        self._process = None

    def unmount(self) -> None:
        """After a cut, once nobody holds files in it; also ends a mount that was never cut."""
        subprocess.run(["fusermount3", "-u", "-z", str(self.path)], check=False, capture_output=True, timeout=30)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def load(platter: Path) -> Disk:
    disk = Disk()
    for above, directories, files in os.walk(platter):
        inside = "/" + os.path.relpath(above, platter) if above != str(platter) else ""
        for name in directories:
            disk.add(f"{inside}/{name}", Directory())
        for name in files:
            disk.add(f"{inside}/{name}", File(Path(above, name).read_bytes()))
    disk.sync_names()
    return disk


def store(found: dict[str, bytes | None], platter: Path) -> None:
    shutil.rmtree(platter)
    platter.mkdir()
    for path, content in found.items():
        target = platter / path.lstrip("/")
        if content is None:
            target.mkdir()
        else:
            target.write_bytes(content)


def serve(mount: str, platter: Path, seed: int) -> None:
    import mfusepy

    class Operations(mfusepy.Operations):
        use_ns = True

        def __init__(self) -> None:
            self._disk = load(platter)
            self._open: dict[int, File] = {}
            self._next = 0
            self._changed_ns = time.time_ns()

        def _handle(self, file: File) -> int:
            self._next += 1
            self._open[self._next] = file
            return self._next

        def _file(self, path, fh=None) -> File:
            node = self._open[fh] if fh in self._open else self._disk.find(path)
            if not isinstance(node, File):
                raise mfusepy.FuseOSError(errno.EISDIR)
            return node

        # Names

        def getattr(self, path, fh=None):
            node = self._open[fh] if fh in self._open else self._disk.find(path)
            now = self._changed_ns
            times = {"st_atime": now, "st_mtime": now, "st_ctime": now, "st_uid": os.getuid(), "st_gid": os.getgid()}
            if isinstance(node, Directory):
                return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2, **times}
            size = len(node.content)
            return {
                "st_mode": stat.S_IFREG | 0o644,
                "st_nlink": 1,
                "st_size": size,
                "st_blocks": -(-size // 512),
                **times,
            }

        def readdir(self, path, fh):
            node = self._disk.find(path)
            return [".", "..", *node.entries]

        def mkdir(self, path, mode):
            if path == f"/{CUT}":
                store(self._disk.power_cut(random.Random(seed)), platter)
                os._exit(0)
            self._disk.add(path, Directory())
            return 0

        def create(self, path, mode, fi=None):
            file = File()
            self._disk.add(path, file)
            return self._handle(file)

        def unlink(self, path):
            self._disk.remove(path)
            return 0

        def rmdir(self, path):
            node = self._disk.find(path)
            if isinstance(node, Directory) and node.entries:
                raise mfusepy.FuseOSError(errno.ENOTEMPTY)
            self._disk.remove(path)
            return 0

        def rename(self, old, new, flags=0):
            self._disk.rename(old, new)
            return 0

        def chmod(self, path, mode):
            return 0

        def chown(self, path, uid, gid):
            return 0

        def utimens(self, path, times=None):
            return 0

        # Contents

        def open(self, path, flags):
            return self._handle(self._file(path))

        def release(self, path, fh):
            self._open.pop(fh, None)
            return 0

        def read(self, path, size, offset, fh):
            return bytes(self._file(path, fh).content[offset : offset + size])

        def write(self, path, data, offset, fh):
            self._file(path, fh).change(Write(offset, data))
            return len(data)

        def truncate(self, path, length, fh=None):
            self._file(path, fh).change(Truncate(length))
            return 0

        def fsync(self, path, datasync, fh):
            self._file(path, fh).sync()
            return 0

        def fsyncdir(self, path, datasync, fh):
            self._disk.sync_names()
            return 0

        def statfs(self, path):
            return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 24, "f_bfree": 1 << 23, "f_bavail": 1 << 23}

    mfusepy.FUSE(Operations(), mount, foreground=True, nothreads=True)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
