"""`python -m benchmarks.tls`: compares one broker of tierlog with one of Apache Kafka, both with TLS, as ratios.

Both have the same certificate (RSA, 2048 bits) and the same client, librdkafka; TLS version and cipher are what it
agrees on with each. One produce and one consume are measured once more without TLS. Then what a connection costs: with
TLS, and with TLS and a login by SCRAM. Prints a table, writes benchmarks/results/tls.json. Takes about four minutes,
`--quick` one.
"""

import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from rich.console import Console

from benchmarks import limits
from benchmarks.client import load
from benchmarks.peer.jars import CACHE, jars_dir, java
from benchmarks.peer.kafka import KafkaServer
from benchmarks.plan import plain_plan, tls_plan
from benchmarks.process import BrokerFailed, BrokerProcess, free_port
from benchmarks.records import write_records
from benchmarks.report import RESULTS, compared
from benchmarks.results import Results, describe_machine, describe_versions
from benchmarks.run import KAFKA_SETTINGS, OthersCpu, throughputs
from benchmarks.service import TierlogServer
from benchmarks.workloads import Target

USER, PASSWORD = "ada", "a-long-password"
ITERATIONS = 4096


class Certificates(NamedTuple):
    ca: Path
    certificate: Path
    key: Path
    both: Path
    """Key and certificate in one file, as Kafka wants them."""


class Secured(NamedTuple):
    """A broker with three listeners: its own without TLS, one with TLS, and one with TLS and a login."""

    broker: BrokerProcess
    tls_port: int
    login_port: int

    def at(self, port: int) -> str:
        return f"{self.broker.host}:{port}"


def measure(quick: bool, console: Console) -> Results:
    java()
    jars_dir()
    load.build()
    RESULTS.mkdir(exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE.parent) as name:
        directory = Path(name)
        results = Results(describe_machine(directory), describe_versions(), limits.measure(directory), quick)
        records = {size: write_records(directory / f"records-{size}", size) for size in (100, 1000)}
        certificates = make_certificates(directory)
        sides = [tierlog(directory / "tierlog", certificates), kafka(directory / "kafka", certificates)]
        client = {"security.protocol": "ssl", "ssl.ca.location": str(certificates.ca)}
        try:
            console.print("[cyan]▸[/] starting tierlog and Apache Kafka with TLS, warming both up")
            for side in sides:
                side.broker.start()
            results.versions["tls"] = "; ".join(_agreed(side, certificates) for side in sides)
            noise = OthersCpu([side.broker for side in sides])
            plan = tls_plan(quick=quick)
            plain = [Target(side.broker, records) for side in sides]
            targets = [Target(side.broker, records, side.at(side.tls_port), client) for side in sides]
            for target in targets:
                target.warm_up(plan.warm_up_seconds)
            saved = RESULTS / "tls.json"
            throughputs(plan, targets, results, saved, console, suffix=", TLS")
            throughputs(plain_plan(plan), plain, results, saved, console, suffix=", no TLS")
            connections(sides, client, 50 if quick else 100, plan.repeats, results, console)
            results.others_cpu_share = noise.share()
        finally:
            for side in sides:
                side.broker.kill()
    results.minutes = (time.monotonic() - began) / 60
    results.write(RESULTS / "tls.json")
    return results


def connections(
    sides: list[Secured], client: Mapping[str, str], count: int, repeats: int, results: Results, console: Console
) -> None:
    for side in sides:
        credential = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS), PASSWORD.encode()
        )
        admin = AdminClient({"bootstrap.servers": side.broker.bootstrap, "log_level": "0"})
        admin.alter_user_scram_credentials([credential])[USER].result(30)
    login = {
        **client,
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    for job, settings in (("TLS", client), (f"TLS, SCRAM-SHA-512 with {ITERATIONS} iterations", login)):
        console.print(f"[cyan]▸[/] connections: {job}")
        for turn in range(repeats + 1):
            for side in sides if turn % 2 == 0 else reversed(sides):
                at = side.at(side.login_port if settings is login else side.tls_port)
                cpu = side.broker.cpu_seconds()
                seconds = load.connect(at, count, settings)
                cpu = side.broker.cpu_seconds() - cpu
                if turn:  # The first turn warms up.
                    for unit, value in (("per second", count / seconds), ("broker CPU ms", 1000 * cpu / count)):
                        getattr(results.row("connections", job, unit), side.broker.name).append(value)


def make_certificates(directory: Path) -> Certificates:
    made = Certificates(*(directory / name for name in ("ca.pem", "broker.pem", "broker.key", "kafka.pem")))
    ca_key = directory / "ca.key"
    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    _openssl(*new, "-subj", "/CN=benchmark", "-keyout", str(ca_key), "-out", str(made.ca))
    extensions = ("subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE")
    _openssl(
        *(*new, "-subj", "/CN=broker", *(part for each in extensions for part in ("-addext", each))),
        *("-CA", str(made.ca), "-CAkey", str(ca_key), "-keyout", str(made.key), "-out", str(made.certificate)),
    )
    made.both.write_text(made.key.read_text() + made.certificate.read_text())
    return made


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokerFailed(f"openssl {' '.join(arguments)}:\n{done.stderr}")


def tierlog(directory: Path, certificates: Certificates) -> Secured:
    directory.mkdir()
    tls_port, login_port = free_port(), free_port()
    server = TierlogServer(
        directory,
        arguments=[
            *("--tls.certificate", str(certificates.certificate), "--tls.key", str(certificates.key)),
            *("--listener.secure.protocol", "tls", "--listener.secure.bind", f"127.0.0.1:{tls_port}"),
            *("--listener.login.protocol", "sasl_tls", "--listener.login.bind", f"127.0.0.1:{login_port}"),
            *("--listener.login.takes", "clients", "--listener.secure.takes", "clients"),
        ],
    )
    return Secured(server, tls_port, login_port)


def kafka(directory: Path, certificates: Certificates) -> Secured:
    directory.mkdir()
    tls_port, login_port = free_port(), free_port()
    server = KafkaServer(directory, KAFKA_SETTINGS)
    listeners = f"{server.settings['listeners']},SSL://{server.host}:{tls_port},SASL_SSL://{server.host}:{login_port}"
    server.settings |= {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.both),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    return Secured(server, tls_port, login_port)


def _agreed(side: Secured, certificates: Certificates) -> str:
    """Returns the TLS version and the cipher that OpenSSL, which librdkafka uses, agrees on with this broker."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with (
        socket.create_connection((side.broker.host, side.tls_port), timeout=10) as connection,
        context.wrap_socket(connection, server_hostname=side.broker.host) as agreed,
    ):
        cipher = agreed.cipher()
        assert cipher is not None
        return f"{side.broker.name} {agreed.version()} {cipher[0]}"


if __name__ == "__main__":
    sys.exit(compared("tls", __doc__ or "", "fewer jobs, and a JVM that is hardly warm", measure))
