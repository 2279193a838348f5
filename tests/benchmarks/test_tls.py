"""A small run of the benchmark with TLS, on tierlog alone: its load comes in by TLS and by a login."""

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.client import load
from benchmarks.limits import Limits
from benchmarks.records import write_records
from benchmarks.results import Results
from benchmarks.tls import connections, make_certificates, tierlog
from benchmarks.workloads import Produce, Target


@pytest.mark.process
@pytest.mark.slow
def test_load_comes_in_by_tls(tmp_path: Path) -> None:
    try:
        load.build()
    except load.LoadFailed as error:
        pytest.skip(str(error))
    certificates = make_certificates(tmp_path)
    side = tierlog(tmp_path / "tierlog", certificates)
    client = {"security.protocol": "ssl", "ssl.ca.location": str(certificates.ca)}
    records = {1000: write_records(tmp_path / "records", 1000)}
    with side.broker:
        target = Target(side.broker, records, side.at(side.tls_port), client)
        topic = target.make_topic("os")
        done = target.produce(topic, Produce(1000, "all", "none", 64 << 10), count=5000)
        assert target.measure_consume(topic, done.records)["MB/s"] > 0
        results = Results({}, {}, Limits(0, 0, 0, 0), quick=True)
        connections([side], client, 2, 1, results, Console(quiet=True))
        assert [row.job.partition(" ")[0] for row in results.rows if row.unit == "per second"] == ["TLS", "TLS,"]
