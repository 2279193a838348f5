"""Opens the store that a bucket URL names, and probes what the store can do."""

import uuid
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from cold_tier.errors import StoreMisconfigured
from cold_tier.keys.master import MasterKeys
from cold_tier.layout import PROBES
from cold_tier.objects.bucket import Bucket, RetryPolicy
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
        metadata={"doc": "An operation on the bucket fails if it has not succeeded within this time.", "min": 1},
    )
    attempt_ms: int = field(
        default=15_000,
        metadata={"doc": "One attempt at an operation is repeated if it has not ended within this time.", "min": 1},
    )

    read_deadline_ms: int = field(
        default=5_000,
        metadata={
            "doc": "A consumer's read from the bucket gets an error with the reason if it has not succeeded within "
            "this time; its client tries again.",
            "min": 1,
        },
    )
    sse: Literal["none", "AES256", "aws:kms"] = field(
        default="none",
        metadata={
            "doc": "Server-side encryption that is asked for with every object: with keys of S3 (`AES256`), of AWS KMS "
            "(`aws:kms`), or as the bucket does by itself (`none`)."
        },
    )
    sse_kms_key_id: str = field(
        default="", metadata={"doc": "The key of AWS KMS for `store.sse` = `aws:kms`; empty: the account's key for S3."}
    )
    keys_file: str = field(
        default="",
        metadata={
            "doc": "The file with the keys of encrypted topics, mode 0600 (`tierlog keys new`); AWS KMS needs none."
        },
    )

    def __post_init__(self) -> None:
        url = urlsplit(self.bucket)
        directory = url.scheme == "file" and url.netloc in ("", "localhost") and url.path.startswith("/")
        if self.bucket and not directory and not (url.scheme == "s3" and url.netloc):
            raise SettingsError(
                f"store.bucket cannot be {self.bucket!r}", hint="it is file:///absolute/path or s3://bucket/prefix"
            )
        if self.sse != "none" and url.scheme != "s3":
            raise SettingsError(f"store.sse is {self.sse}, but the bucket is not in S3", hint="leave it out")
        if self.sse_kms_key_id and self.sse != "aws:kms":
            raise SettingsError("store.sse_kms_key_id needs store.sse = aws:kms", hint="set it, or leave the key out")
        endpoint = urlsplit(self.s3_endpoint)
        if self.s3_endpoint and not (endpoint.scheme in ("http", "https") and endpoint.netloc):
            raise SettingsError(
                f"store.s3_endpoint cannot be {self.s3_endpoint!r}", hint="it is http://HOST:PORT or https://HOST:PORT"
            )


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a probe found. Without `put_if_absent` only the epoch fences a manifest."""

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


def open_store(settings: StoreSettings, *, create: bool = False) -> Bucket:
    """Returns the store that `settings` name. Raises StoreMisconfigured or StoreDenied if it cannot be used at all.

    With `create` a directory that does not exist is made. Only a broker does so; for others the name is probably
    mistyped.
    """
    return Bucket(
        _raw_store(settings, create),
        RetryPolicy(deadline_ms=settings.deadline_ms, attempt_ms=settings.attempt_ms),
        keys=MasterKeys(settings.keys_file, settings.s3_region),
    )


async def probe(store: Bucket) -> Capabilities:
    """Tries on one small object the operations that safety and speed depend on. Leaves nothing behind.

    It lists first, because SeaweedFS would create a missing bucket on the first put.
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
            sse="" if settings.sse == "none" else settings.sse,
            sse_kms_key_id=settings.sse_kms_key_id,
        )
    raise StoreMisconfigured("no bucket is named", hint="use --bucket file:///absolute/path or s3://bucket/prefix")
