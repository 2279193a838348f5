"""Who may look at files."""

import stat
from pathlib import Path


def open_to_others(directory: Path) -> list[str]:
    """The directory and what is below it, as far as others than its owner may do anything with it."""
    return [
        f"{stat.filemode(path.lstat().st_mode)} {path}"
        for path in (directory, *directory.rglob("*"))
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]
