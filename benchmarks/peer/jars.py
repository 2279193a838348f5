"""Finds and fetches Apache Kafka's jars: Maven copies what `pom.xml`, `programs.xml` and `connector.xml` list.

For each list, the jars of one version are complete or absent: Maven fills a scratch directory, which is then renamed.
Nothing is installed here. If Java or Maven is missing, `PeerUnavailable` says so.
"""

import functools
import re
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
PROGRAMS = Path(__file__).with_name("programs.xml")
CONNECTOR = Path(__file__).with_name("connector.xml")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"
MIN_JAVA = 17
FETCH_TIMEOUT_S = 600


class PeerUnavailable(Exception):
    """Apache Kafka cannot run here. The text says what is missing and how to get it."""


def kafka_version() -> str:
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", POM.read_text())
    assert found, f"{POM} names no kafka.version"
    return found[1]


def java() -> str:
    """Returns the Java command, and checks that it is new enough for Kafka 4."""
    path = shutil.which("java")
    if path is None:
        raise PeerUnavailable(f"no java on PATH: install a JRE {MIN_JAVA} or newer (Debian: openjdk-17-jre-headless)")
    banner = _banner(path)
    version = re.search(r'version "(\d+)', banner)
    if version is None or int(version[1]) < MIN_JAVA:
        raise PeerUnavailable(f"{path} is too old, Kafka 4 needs Java {MIN_JAVA}: {banner.splitlines()[:1]}")
    return path


@functools.cache
def _banner(path: str) -> str:
    return subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr


def jars_dir() -> Path:
    """Returns the directory of the jars. Raises `PeerUnavailable` if they were not fetched yet."""
    return _present(CACHE / kafka_version())


def programs_dir() -> Path:
    """Like `jars_dir`, for the other jars that Kafka Streams, Connect and MirrorMaker need."""
    return _present(CACHE / f"{kafka_version()}-programs")


def _present(directory: Path) -> Path:
    if not directory.is_dir():
        raise PeerUnavailable(f"no jars in {directory}: run `python -m benchmarks.peer fetch` (make kafka-jars)")
    return directory


def fetch() -> Path:
    """Copies the jars from Maven's repositories unless they are there already."""
    return _copy(POM, CACHE / kafka_version())


def fetch_programs() -> Path:
    return _copy(PROGRAMS, CACHE / f"{kafka_version()}-programs", "-DexcludeTransitive=true")


def fetch_connector() -> list[Path]:
    """Returns the jars of Spark's Kafka source, likewise."""
    return sorted(_copy(CONNECTOR, CACHE / "spark-connector", "-DexcludeTransitive=true").glob("*.jar"))


def _copy(pom: Path, directory: Path, *flags: str) -> Path:
    if directory.is_dir():
        return directory
    java()
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("no mvn on PATH: install Maven (Debian: maven)")
    scratch = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    goal = "dependency:copy-dependencies"
    command = [maven, "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={scratch}"]
    command += [f"-Dkafka.version={kafka_version()}", *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if result.returncode != 0 or not list(scratch.glob("*.jar")):
        tail = "\n".join((result.stdout + result.stderr).splitlines()[-15:])
        raise PeerUnavailable(f"Maven could not fetch what {pom.name} lists:\n{tail}")
    scratch.rename(directory)
    return directory
