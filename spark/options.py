"""Options of a read of the archive: those of Spark's Kafka source where they mean the same, and our own.

| option | default | |
|---|---|---|
| `path`, `bucket` | | the bucket: `file:///path`, `s3://bucket/prefix` or `s3a://…` |
| `subscribe` | | topics, separated by commas |
| `startingOffsets` | `earliest`; for a stream `latest` | or `latest`, or JSON `{"orders":{"0":23,"1":-2}}` |
| `endingOffsets` | `latest` | the same; -1 is latest, -2 earliest; partitions that are not named take the default |
| `startingTimestamp`, `endingTimestamp` | | `2026-03-01T08:00:00Z` or milliseconds; the end is excluded |
| `failOnDataLoss` | `true` | false: rows that were asked for and are gone are left out |
| `includeHeaders` | `true` | false: no column `headers`, which is the default of Spark's Kafka source |
| `minPartitions` | | at least this many tasks, if there are enough segments |
| `maxOffsetsPerTrigger` | | the most offsets in a micro-batch of a stream |
| `includeHot`, `gateway` | `false` | also reads what is not archived yet, from the service at this URL |
| `gatewayCa`, `gatewayUser`, `gatewayPassword` | `TIERLOG_CA` … | how to come in there, by `https` |
| `asOf` | | reads the archive as it was at this time, written as above |
| `s3Endpoint` | | the address of an S3-compatible store |
| `reader` | `native`, if it can be used | or `python`: without Hadoop's file systems |
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from urllib.parse import quote, urlsplit

import orjson

from cold_tier.objects.open import StoreSettings
from hot_tier.errors import SettingsError
from spark.gateway import Gateway, open_gateway

EARLIEST: Final = -2
LATEST: Final = -1
KEYS_FILE_VARIABLE: Final = "TIERLOG_STORE__KEYS_FILE"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, where Python's dates end. It also catches microseconds given for milliseconds."""

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
        "gatewayCa",
        "gatewayUser",
        "gatewayPassword",
        "asOf",
        "s3Endpoint",
        "keysFile",
        "reader",
    )
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where partitions begin or end: one default for all, and given offsets for some."""

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
    gateway: Gateway | None = None
    """The service that has the hot tail. None reads the archive alone."""
    as_of_ms: int | None = None
    reader: Literal["native", "python"] | None = None


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Raises SettingsError with the wrong option and what it may be. Like Spark, ignores upper and lower case in option
    names."""
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
            "includeHot needs the address of the service that has the hot tail",
            hint='set "gateway", such as http://127.0.0.1:8080',
        )
    if include_hot and "asof" in given:
        raise SettingsError(
            "asOf and includeHot exclude each other",
            hint="no earlier state of the hot tail is kept; leave one of them out",
        )
    reader = given.get("reader") or None
    if reader not in (None, "native", "python"):
        raise SettingsError(f"reader cannot be {reader!r}", hint="it is native or python")
    return ReadOptions(
        store=store_settings(
            given.get("bucket") or given.get("path") or "", given.get("s3endpoint", ""), given.get("keysfile", "")
        ),
        topics=topics,
        starting=_position(given, "startingOffsets", LATEST if streaming else EARLIEST, topics),
        ending=_position(given, "endingOffsets", LATEST, topics),
        from_ms=_time(given, "startingTimestamp"),
        to_ms=_time(given, "endingTimestamp"),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        include_headers=_boolean(given, "includeHeaders", True),
        min_partitions=_number(given, "minPartitions", 1),
        max_offsets_per_trigger=_number(given, "maxOffsetsPerTrigger", 1),
        gateway=_gateway(given, gateway) if gateway and include_hot else None,
        as_of_ms=_time(given, "asOf"),
        reader=reader,  # type: ignore[arg-type]
    )


def keys_file() -> str:
    """Returns the key file that this process's environment names, by the name of the broker's setting."""
    return os.environ.get(KEYS_FILE_VARIABLE, "")


def _gateway(given: Mapping[str, str], url: str) -> Gateway:
    return open_gateway(url, *(given.get(f"gateway{name}", "") for name in ("ca", "user", "password")))


def store_settings(bucket: str, s3_endpoint: str = "", keys: str = "") -> StoreSettings:
    """Accepts a bucket as users of Spark write it, such as `s3a://…`, `file:/path` or a plain path."""
    url = urlsplit(bucket)
    if url.scheme in ("s3a", "s3n"):
        bucket = f"s3{bucket[len(url.scheme) :]}"
    elif url.scheme == "file":
        bucket = f"file://{url.path}"
    elif not url.scheme and bucket.startswith("/"):
        bucket = f"file://{quote(bucket)}"
    elif not bucket:
        raise SettingsError("no bucket is named", hint="give it as file:///path or s3://bucket/prefix")
    return StoreSettings(bucket=bucket, s3_endpoint=s3_endpoint, keys_file=keys or keys_file())


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
        raise SettingsError(
            f"{name} names {', '.join(sorted(unknown))}, subscribe does not", hint="add it to subscribe"
        )
    return Position(default, found)


def _offset(value: object) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset")
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
    """Returns milliseconds since 1970. `text` is ISO 8601, in UTC if it names no zone, or already milliseconds. Raises
    ValueError otherwise."""
    if text.isdecimal():
        if int(text) > _LAST_MS:
            raise ValueError(f"{text} is after the year 9999")
        return int(text)
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise SettingsError(f"{name} cannot be {text!r}", hint="it is true or false")
    return text == "true"
