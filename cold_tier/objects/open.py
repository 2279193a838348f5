"""From a bucket URL to a store that is ready to use, and a plain word on what it cannot do."""

import uuid
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from cold_tier.errors import StoreMisconfigured
from cold_tier.layout import PROBES
from cold_tier.objects.retrying import RetryingStore, RetryPolicy
from cold_tier.objects.store import ObjectStore
from hot_tier.errors import SettingsError


@dataclass(frozen=True, slots=True)
class StoreSettings:
    bucket: str = field(
        default="",
        metadata={
            "doc": "The bucket that sealed segments go to: `file:///path` or `s3://bucket/prefix`; empty: the "
            "directory `bucket` in the data directory."
        },
    )
    s3_endpoint: str = field(
        default="",
        metadata={"doc": "Address of an S3-compatible store, such as `http://127.0.0.1:8333`; empty: Amazon S3."},
    )
    s3_region: str = field(default="", metadata={"doc": "AWS region; empty: what `AWS_REGION` says, or us-east-1."})
    deadline_ms: int = field(
        default=60_000,
        metadata={"doc": "An operation on the bucket that has not succeeded by then has failed.", "min": 1},
    )
    attempt_ms: int = field(
        default=15_000, metadata={"doc": "One attempt at it that has not ended by then is made again.", "min": 1}
    )

    read_deadline_ms: int = field(
        default=5_000,
        metadata={
            "doc": "A consumer's read from the bucket that has not succeeded by then is answered with an error that "
            "says why; its client tries again.",
            "min": 1,
        },
    )

    def __post_init__(self) -> None:
        url = urlsplit(self.bucket)
        directory = url.scheme == "file" and url.netloc in ("", "localhost") and url.path.startswith("/")
        if self.bucket and not directory and not (url.scheme == "s3" and url.netloc):
            raise SettingsError(
                f"store.bucket cannot be {self.bucket!r}", hint="it is file:///absolute/path or s3://bucket/prefix"
            )
        endpoint = urlsplit(self.s3_endpoint)
        if self.s3_endpoint and not (endpoint.scheme in ("http", "https") and endpoint.netloc):
            raise SettingsError(
                f"store.s3_endpoint cannot be {self.s3_endpoint!r}", hint="it is http://HOST:PORT or https://HOST:PORT"
            )


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a probe found. Without `put_if_absent` a manifest is fenced by its epoch alone."""

    ranged_get: bool
    put_if_absent: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(
            text
            for holds, text in (
                (self.ranged_get, "ranged GET is ignored: every cold read would fetch whole objects"),
                (
                    self.put_if_absent,
                    "put-if-absent (If-None-Match: *) is ignored: run one broker per bucket prefix, "
                    "or use a store that has it",
                ),
            )
            if not holds
        )


def open_store(settings: StoreSettings, *, create: bool = False) -> RetryingStore:
    """The store that `settings` name; StoreMisconfigured or StoreDenied if it cannot even be tried.

    With `create` a directory that is not there is made: for a broker. To anyone else its name is mistyped.
    """
    return RetryingStore(
        _raw_store(settings, create), RetryPolicy(deadline_ms=settings.deadline_ms, attempt_ms=settings.attempt_ms)
    )


async def probe(store: RetryingStore) -> Capabilities:
    """Try on one small object what safety and speed rest on; leaves nothing behind.

    It lists first: SeaweedFS makes a bucket that is not there when something is put into it.
    """
    await anext(aiter(store.list(PROBES)), None)
    key = f"{PROBES}{uuid.uuid4()}"
    await store.put(key, b"0123456789")
    try:
        ranged = bytes(await store.get(key, 3, 4)) == b"3456"
        created_again = await store.put_if_absent(key, b"other")
    finally:
        await store.delete([key])
    return Capabilities(ranged_get=ranged, put_if_absent=not created_again)


def _raw_store(settings: StoreSettings, create: bool) -> ObjectStore:
    url = urlsplit(settings.bucket)
    if url.scheme == "file":
        from cold_tier.objects.directory import DirectoryStore

        return DirectoryStore(unquote(url.path), create=create)
    if url.scheme == "s3":
        from cold_tier.objects.s3 import S3Store

        return S3Store(
            url.netloc,
            url.path,
            endpoint=settings.s3_endpoint or None,
            region=settings.s3_region or None,
            timeout_ms=settings.deadline_ms,
        )
    raise StoreMisconfigured("no bucket is named", hint="use --bucket file:///absolute/path or s3://bucket/prefix")
