"""What every job shares as a command: its flags, its session, and its exit codes.

The codes are those of the `tierlog` command: 0 done, 1 failed, 2 wrong usage, 3 no such thing, 4 refused because of
what exists already, 5 try again, 130 interrupted. Results go to standard output, everything else to standard error.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from cold_tier.errors import NoSuchBucket, StoreMisconfigured
from hot_tier.errors import (
    OffsetOutOfRange,
    PolicyViolation,
    SettingsError,
    TierlogError,
    UnknownPartition,
    UnknownTopic,
)
from spark.options import KEYS_FILE_VARIABLE, parse_time
from spark.plan import Plan
from spark.session import own_session, session_endpoint

OURS = ("hot_tier.", "cold_tier.", "spark.", "tierlog.")
"""The names of our errors begin with these, in a checkout and in the wheel."""


class JobFailed(TierlogError):
    """Spark stopped the job after a failure."""


class JobRefused(TierlogError):
    """The job was asked for something that contradicts what exists already."""


def job_parser(name: str, what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"tierlog spark {name}",
        description=what,
        epilog=f"On a cluster: spark-submit job.py spark {name} --bucket s3://bucket/prefix …\n"
        "where job.py is: from tierlog.__main__ import main; main()",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bucket", required=True, metavar="URL", help="file:///path or s3://bucket/prefix")
    parser.add_argument("--s3-endpoint", default="", metavar="URL", help="address of an S3-compatible store")
    parser.add_argument(
        "--keys-file", default="", metavar="FILE", help="the keys of encrypted topics, at this path on every worker"
    )
    parser.add_argument("--json", action="store_true", help="write JSON for programs to standard output")
    return parser


def add_decrypt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--decrypt", action="store_true", help="write records of an encrypted topic without encryption")


def check_decrypt(plan: Plan, allowed: bool) -> None:
    """Raises JobRefused if rows that are encrypted in the archive would be written plain, and nobody has said so."""
    if plan.encrypted and not allowed:
        raise JobRefused(
            "these records are encrypted in the archive, and what this job writes is not",
            where=plan.ranges[0].topic,
            hint="if that is what you want: --decrypt",
        )


def add_range(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that select records of a topic. The names are those of `spark.options`."""
    parser.add_argument("--starting-offsets", metavar="JSON", help='earliest, or such as {"orders":{"0":23}}')
    parser.add_argument("--ending-offsets", metavar="JSON", help="latest, or as above; exclusive")
    parser.add_argument(
        "--from", dest="from_", type=_time, metavar="TIME", help="2026-03-01T08:00:00Z, or ms since 1970"
    )
    parser.add_argument("--until", type=_time, metavar="TIME", help="the end of the range, exclusive")


def range_options(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the values of the flags of `add_range` as options of `tierlog_read`."""
    named = {
        "startingOffsets": given.starting_offsets,
        "endingOffsets": given.ending_offsets,
        "startingTimestamp": given.from_,
        "endingTimestamp": given.until,
    }
    return {name: value for name, value in named.items() if value is not None}


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write 2026-03-01T08:00:00Z or milliseconds"
        ) from None


def run(
    parser: argparse.ArgumentParser,
    work: Callable[[SparkSession, argparse.Namespace], int],
    arguments: Sequence[str],
    *,
    through_hadoop: bool = True,
    config: Mapping[str, str] | None = None,
) -> int:
    """Parses the arguments, runs `work` on a session, and reports errors. `through_hadoop`: Spark itself reads rows."""
    given = parser.parse_args(arguments)
    if given.keys_file:
        os.environ[KEYS_FILE_VARIABLE] = os.path.abspath(given.keys_file)
    running = SparkSession.getActiveSession()
    given.session_ends = running is None
    try:
        with nullcontext(running) if running is not None else _started(given, through_hadoop, config or {}) as spark:
            given.s3_endpoint = given.s3_endpoint or session_endpoint(spark, given.bucket)
            return work(spark, given)
    except TierlogError as error:
        return report(error, as_json=given.json)
    except PySparkException as error:
        return report(_translated(error), as_json=given.json)
    except KeyboardInterrupt:
        return 130


@contextmanager
def _started(given: argparse.Namespace, through_hadoop: bool, config: Mapping[str, str]) -> Iterator[SparkSession]:
    in_s3 = any(str(value).startswith(("s3:", "s3a:")) for value in vars(given).values())
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # On one machine, Spark's 200 tasks per shuffle would be most of a small job's time.
        config = {"spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)), **config}
    with own_session(
        f"tierlog {given.bucket}",
        s3=in_s3 and through_hadoop,
        s3_endpoint=given.s3_endpoint if through_hadoop else "",
        config={
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
            **config,
        },
    ) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark


def _translated(error: PySparkException) -> TierlogError:
    text = str(error).strip()
    if error.getCondition() == "CAST_INVALID_INPUT":
        return SettingsError(
            text.splitlines()[0], hint="write try_cast(… as …): it gives null for values that do not fit"
        )
    if isinstance(error, AnalysisException | ParseException):
        return SettingsError(text.splitlines()[0], hint="check the expression and the names of columns in it")
    # Of the lines that name our errors, the last is the error that the task raised.
    ours = [line.strip() for line in text.splitlines() if line.strip().startswith(OURS)]
    return JobFailed(ours[-1].partition(": ")[2] if ours else text[:2000])


def report(error: TierlogError, *, as_json: bool) -> int:
    code = exit_code(error)
    if as_json:
        document = {"error": error.what, "where": error.where, "hint": error.hint, "exit_code": code}
        print(json.dumps(document, ensure_ascii=False), file=sys.stderr)
        return code
    print(f"error: {error.where}: {error.what}" if error.where else f"error: {error.what}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {error.hint}", file=sys.stderr)
    return code


def exit_code(error: TierlogError) -> int:
    match error:
        case UnknownTopic() | UnknownPartition() | NoSuchBucket():
            return 3
        case SettingsError() | StoreMisconfigured():
            return 2
        case OffsetOutOfRange() | PolicyViolation() | JobRefused():
            return 4
        case _:
            return 5 if error.retriable else 1


@contextmanager
def configured(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Changes a setting of the session for the `with` block."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def print_json(document: Any) -> None:
    json.dump(document, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligns columns whose name ends in `>` to the right. Numbers get separators."""
    cells = [[f"{cell:,}" if type(cell) is int else str(cell) for cell in row] for row in rows]
    table = [[column.removesuffix(">") for column in columns], *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        aligned = [
            cell.rjust(width) if column.endswith(">") else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        ]
        print("  ".join(aligned).rstrip())


def show_bytes(count: float) -> str:
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    while abs(count) >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.1f} {units[0]}" if units[0] != "B" else f"{count:.0f} B"


def show_time(milliseconds: int) -> str:
    """Returns milliseconds if the year has more than four digits, which a record's timestamp allows."""
    if milliseconds < 0:
        return "-"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return str(milliseconds)
