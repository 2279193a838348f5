"""`tierlog plan`: brokers, disks, network and dollars per month for a load, compared with Apache Kafka."""

import os
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hot_tier.errors import SettingsError
from tierlog.cli import output
from tierlog.cli.options import Json
from tierlog.cli.times import parse_duration

if TYPE_CHECKING:
    from tierlog.capacity import Load, Measured, Plan

_TIMES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)(?:/s)?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)B?", re.IGNORECASE)


def register(app: typer.Typer) -> None:
    app.command("plan", help="Show the brokers that a load takes, and what they cost.")(plan)


def plan(
    rate: Annotated[str, typer.Option(metavar="RATE", help="Records per second on average: 1M/s, 500k/s.")] = "1M/s",
    peak: Annotated[
        str | None, typer.Option(metavar="RATE", help="Records per second at the peak. [default: four times --rate]")
    ] = None,
    record_size: Annotated[str, typer.Option(metavar="SIZE", help="Size of one record: 1KB, 300B.")] = "1KB",
    retention: Annotated[str, typer.Option(metavar="TIME", help="How long records are kept: 30d.")] = "30d",
    local_retention: Annotated[
        str, typer.Option(metavar="TIME", help="How long they stay on the brokers' disks: 6h.")
    ] = "6h",
    replication: Annotated[int, typer.Option(min=1, metavar="N", help="Copies on brokers.")] = 3,
    producers: Annotated[int, typer.Option(min=1, metavar="N", help="Clients that write.")] = 10_000,
    consumers: Annotated[int, typer.Option(min=0, metavar="N", help="Clients that read.")] = 50_000,
    groups: Annotated[float, typer.Option(min=0, metavar="N", help="How often each record is read.")] = 2,
    linger: Annotated[str, typer.Option(metavar="TIME", help="How long a producer gathers a batch: 5ms.")] = "5ms",
    batch_size: Annotated[str, typer.Option(metavar="SIZE", help="Largest batch of a producer.")] = "64KB",
    partition_rate: Annotated[str, typer.Option(metavar="RATE", help="Most that one partition takes.")] = "10k/s",
    compress: Annotated[bool, typer.Option(help="Producers compress with lz4.")] = True,
    config: Annotated[
        str | None, typer.Option(envvar="TIERLOG_CONFIG", metavar="FILE", help="TOML file with prices in [cost].")
    ] = None,
    json: Json = False,
) -> None:
    from tierlog import capacity
    from tierlog.settings import load_settings

    average = number(rate, _RATE, "rate")
    load = capacity.Load(
        rate=average,
        peak=4 * average if peak is None else number(peak, _RATE, "peak"),
        record_bytes=int(number(record_size, _SIZE, "record-size")),
        producers=producers,
        consumers=consumers,
        groups=groups,
        linger_ms=parse_duration(linger),
        batch_bytes=int(number(batch_size, _SIZE, "batch-size")),
        lz4=compress,
        retention_ms=parse_duration(retention),
        local_retention_ms=parse_duration(local_retention),
        replication=replication,
        partition_rate=number(partition_rate, _RATE, "partition-rate"),
    )
    if load.peak < load.rate:
        raise SettingsError("--peak is below --rate", hint="the peak is the most records of any second")
    costs = capacity.measured()
    plans = capacity.plan(load, costs, load_settings(config=config, environment=os.environ).cost)
    if json:
        output.print_json(
            {"load": asdict(load), "measured": asdict(costs), "plans": [_document(each) for each in plans]}
        )
    else:
        _show(load, costs, plans)


def number(text: str, form: re.Pattern[str], flag: str) -> float:
    found = form.fullmatch(text.strip())
    value = float(found[1]) * _TIMES[found[2].lower()] if found else 0.0
    if value < 1:
        raise SettingsError(
            f"--{flag} cannot be {text!r}", hint="write 1M/s or 500k/s" if form is _RATE else "write 1KB"
        )
    return value


def _document(each: "Plan") -> dict[str, Any]:
    lines = [{**asdict(line), "cost": line.cost} for line in each.lines]
    counts = {"brokers": each.brokers, "limited_by": each.limit, "monthly": each.monthly}
    return {**asdict(each), **counts, "lines": lines}


def _show(load: "Load", costs: "Measured", plans: "tuple[Plan, ...]") -> None:
    day = load.rate * load.record_bytes * 86_400
    print(
        f"{output.show_bytes(int(day))} of records a day in {load.partitions:,} partitions; at the peak "
        f"{load.batches_at_peak:,.0f} batches a second of {load.peak / load.batches_at_peak:.1f} records, and "
        f"{load.fetches_at_peak:,.0f} fetches"
    )
    columns = ("", *(f"{each.name}>" for each in plans))
    output.print_table(columns, [(what, *cells) for what, cells in _rows(plans)])
    print(f"CPU per GB, batch and fetch: {costs.source}")


def _rows(plans: "tuple[Plan, ...]") -> list[tuple[str, list[str]]]:
    rows = [
        ("brokers", [f"{each.brokers:,} {each.machine.name}" for each in plans]),
        ("limited by", [each.limit for each in plans]),
        ("cores busy at the peak", [f"{each.peak_cores:,.0f}" for each in plans]),
        ("NVMe, all copies, TB", [f"{each.disk_gb / 1000:,.1f}" for each in plans]),
        ("network at the peak, Gbit/s", [f"{each.peak_gbit:,.0f}" for each in plans]),
        ("connections at one broker", [f"{each.connections:,}" for each in plans]),
    ]
    names = {
        "brokers": "machines",
        "traffic between zones": "traffic between zones",
        "stored rows and indexes": "bucket",
    }
    for start, what in names.items():
        rows.append((f"$ {what}", [_dollars(each, start) for each in plans]))
    requests = [sum(line.cost for line in each.lines if line.unit == "1,000") for each in plans]
    rows.append(("$ requests to the bucket", [f"{each:,.0f}" for each in requests]))
    rows.append(("$ metadata", [_dollars(each, "3 machines") for each in plans]))
    rows.append(("$ per month", [f"{each.monthly:,.0f}" for each in plans]))
    return rows


def _dollars(each: "Plan", start: str) -> str:
    return f"{sum(line.cost for line in each.lines if line.what.startswith(start)):,.0f}"
