"""`make help` tells of every target."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_help_names_every_target() -> None:
    [phony] = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    told = dict(re.findall(r"^make (\S+) +(\S.*)$", shown, re.MULTILINE))
    assert set(told) == set(phony.split())
