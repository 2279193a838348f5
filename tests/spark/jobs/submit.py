"""A job as a cluster runs it: by `spark-submit`, from the program that docs/SPARK_JOBS.md shows."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[3]
PROGRAM = "from tierlog.__main__ import main\nmain()\n"


def submit(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = directory / "job.py"
    program.write_text(PROGRAM)
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    command += ["--conf", "spark.driver.host=127.0.0.1", str(program), *arguments]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, timeout=280, check=False
    )
