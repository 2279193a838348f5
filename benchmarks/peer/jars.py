"""Owns where Apache Kafka's jars are and how they get there: Maven copies what `pom.xml` lists.

The jars of one version are complete or absent: Maven fills a scratch directory which is then renamed.
Nothing is installed here; a missing Java or Maven is a `PeerUnavailable` that says so.
"""

import re
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"
MIN_JAVA = 17
FETCH_TIMEOUT_S = 600


class PeerUnavailable(Exception):
    """Apache Kafka cannot be run here; the text says what is missing and how to get it."""


def kafka_version() -> str:
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", POM.read_text())
    assert found, f"{POM} names no kafka.version"
    return found[1]


def java() -> str:
    """The Java command, known to be new enough for Kafka 4."""
    path = shutil.which("java")
    if path is None:
        raise PeerUnavailable(f"no java on PATH: install a JRE {MIN_JAVA} or newer (Debian: openjdk-17-jre-headless)")
    banner = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    version = re.search(r'version "(\d+)', banner)
    if version is None or int(version[1]) < MIN_JAVA:
        raise PeerUnavailable(f"{path} is too old, Kafka 4 needs Java {MIN_JAVA}: {banner.splitlines()[:1]}")
    return path


def jars_dir() -> Path:
    """The directory of the jars; `PeerUnavailable` if they were not fetched yet."""
    directory = CACHE / kafka_version()
    if not directory.is_dir():
        raise PeerUnavailable(f"no jars in {directory}: run `python -m benchmarks.peer fetch` (make kafka-jars)")
    return directory


def fetch() -> Path:
    """Copies the jars from Maven's repositories unless they are there already."""
    directory = CACHE / kafka_version()
    if directory.is_dir():
        return directory
    java()
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("no mvn on PATH: install Maven (Debian: maven)")
    scratch = CACHE / f".{kafka_version()}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    goal = "dependency:copy-dependencies"
    command = [maven, "-q", "-B", "-f", str(POM), goal, f"-DoutputDirectory={scratch}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if result.returncode != 0 or not list(scratch.glob("kafka_*.jar")):
        tail = "\n".join((result.stdout + result.stderr).splitlines()[-15:])
        raise PeerUnavailable(f"Maven could not fetch Apache Kafka {kafka_version()}:\n{tail}")
    scratch.rename(directory)
    return directory
