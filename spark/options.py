"""What a read of the archive asks for: the options of Spark's Kafka source where they mean the same, and ours.

| option | default | |
|---|---|---|
| `path`, `bucket` | | the bucket: `file:///path`, `s3://bucket/prefix` or `s3a://…` |
| `subscribe` | | topics, separated by commas |
| `startingOffsets` | `earliest`; of a stream `latest` | or `latest`, or JSON `{"orders":{"0":23,"1":-2}}` |
| `endingOffsets` | `latest` | the same; -1 is latest, -2 earliest; partitions that are not named take the default |
| `startingTimestamp`, `endingTimestamp` | | `2026-03-01T08:00:00Z` or milliseconds; the end is excluded |
| `failOnDataLoss` | `true` | false: what is asked for and gone is left out |
| `includeHeaders` | `true` | false: without the column `headers`, as Spark's Kafka source without being asked |
| `minPartitions` | | at least so many tasks, as far as there are segments |
| `maxOffsetsPerTrigger` | | bounds each micro-batch of a stream |
| `includeHot`, `gateway` | `false` | also what is not archived yet, from the service at this URL |
| `asOf` | | the archive as it was at this time, written as above |
| `s3Endpoint` | | of an S3-compatible store |
| `reader` | `native`, where it can | or `python`: without Hadoop's file systems |
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from urllib.parse import quote, urlsplit

import orjson

from cold_tier.objects.open import StoreSettings
from hot_tier.errors import SettingsError

EARLIEST: Final = -2
LATEST: Final = -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, as far as Python's dates go. Microseconds given for milliseconds lie behind it."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_KNOWN: Final = frozenset(
    name.lower()
    for name in (
        "path",
        "bucket",
        "subscribe",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "failOnDataLoss",
        "includeHeaders",
        "minPartitions",
        "maxOffsetsPerTrigger",
        "includeHot",
        "gateway",
        "asOf",
        "s3Endpoint",
        "reader",
    )
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where partitions begin or end: one word for all, and numbers for some."""

    default: int
    """EARLIEST or LATEST."""
    given: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> int:
        return self.given.get((topic, partition), self.default)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    store: StoreSettings
    topics: tuple[str, ...]
    starting: Position
    ending: Position
    from_ms: int | None = None
    to_ms: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = True
    min_partitions: int | None = None
    max_offsets_per_trigger: int | None = None
    gateway: str | None = None
    """The service that has the hot tail; None: the archive alone."""
    as_of_ms: int | None = None
    reader: Literal["native", "python"] | None = None


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """SettingsError names the option that is wrong, and what it may be. Names are taken in any case, as Spark's."""
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    for name in options:
        if name.lower() not in _KNOWN:
            raise SettingsError(f"there is no option {name!r}", hint="the options are listed in docs/SPARK.md")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "asOf"):
            if name.lower() in given:
                raise SettingsError(f"a stream has no {name}", hint="read a batch, or use Trigger.AvailableNow")
    topics = tuple(dict.fromkeys(part.strip() for part in given.get("subscribe", "").split(",") if part.strip()))
    if not topics or not all(map(_TOPIC.fullmatch, topics)):
        raise SettingsError(
            f"subscribe cannot be {given.get('subscribe', '')!r}", hint="it is a topic's name, or several with commas"
        )
    gateway = given.get("gateway")
    include_hot = _boolean(given, "includeHot", False)
    if include_hot and not gateway:
        raise SettingsError(
            "includeHot needs to know where the hot tail is", hint='set "gateway", such as http://127.0.0.1:8080'
        )
    if include_hot and "asof" in given:
        raise SettingsError("asOf and includeHot exclude each other", hint="the hot tail has only its present")
    reader = given.get("reader") or None
    if reader not in (None, "native", "python"):
        raise SettingsError(f"reader cannot be {reader!r}", hint="it is native or python")
    return ReadOptions(
        store=store_settings(given.get("bucket") or given.get("path") or "", given.get("s3endpoint", "")),
        topics=topics,
        starting=_position(given, "startingOffsets", LATEST if streaming else EARLIEST, topics),
        ending=_position(given, "endingOffsets", LATEST, topics),
        from_ms=_time(given, "startingTimestamp"),
        to_ms=_time(given, "endingTimestamp"),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        include_headers=_boolean(given, "includeHeaders", True),
        min_partitions=_number(given, "minPartitions", 1),
        max_offsets_per_trigger=_number(given, "maxOffsetsPerTrigger", 1),
        gateway=gateway.rstrip("/") if gateway and include_hot else None,
        as_of_ms=_time(given, "asOf"),
        reader=reader,  # type: ignore[arg-type]
    )


def store_settings(bucket: str, s3_endpoint: str = "") -> StoreSettings:
    """A bucket as Spark's users write it: also `s3a://…`, `file:/path` and a plain path."""
    url = urlsplit(bucket)
    if url.scheme in ("s3a", "s3n"):
        bucket = f"s3{bucket[len(url.scheme) :]}"
    elif url.scheme == "file":
        bucket = f"file://{url.path}"
    elif not url.scheme and bucket.startswith("/"):
        bucket = f"file://{quote(bucket)}"
    elif not bucket:
        raise SettingsError("no bucket is named", hint="give it as file:///path or s3://bucket/prefix")
    return StoreSettings(bucket=bucket, s3_endpoint=s3_endpoint)


def _position(given: Mapping[str, str], name: str, default: int, topics: tuple[str, ...]) -> Position:
    text = given.get(name.lower())
    if text is None:
        return Position(default)
    if text.lower() in ("earliest", "latest"):
        return Position(EARLIEST if text.lower() == "earliest" else LATEST)
    try:
        found = {
            (topic, int(partition)): _offset(offset)
            for topic, partitions in orjson.loads(text).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise SettingsError(
            f"{name} cannot be {text!r}", hint='it is earliest, latest, or JSON such as {"orders":{"0":23,"1":-2}}'
        ) from error
    unknown = {topic for topic, _ in found} - set(topics)
    if unknown:
        raise SettingsError(f"{name} names {', '.join(sorted(unknown))}", hint="subscribe does not")
    return Position(default, found)


def _offset(value: object) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ValueError(f"{value!r} is no offset")
    return value


def _number(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,18}", text) or int(text) < least:
        raise SettingsError(f"{name} cannot be {text!r}", hint=f"it is a whole number from {least} up")
    return int(text)


def _time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        return parse_time(text)
    except ValueError:
        hint = "it is a time as 2026-03-01T08:00:00Z, or milliseconds since 1970, before the year 10000"
        raise SettingsError(f"{name} cannot be {text!r}", hint=hint) from None


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of ISO 8601, in UTC where it names no zone, or of the number itself; else ValueError."""
    if text.isdecimal():
        if int(text) > _LAST_MS:
            raise ValueError(f"{text} lies behind the year 9999")
        return int(text)
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise SettingsError(f"{name} cannot be {text!r}", hint="it is true or false")
    return text == "true"
