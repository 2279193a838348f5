"""From a bucket URL to a store that is ready to use, and a plain word on what it cannot do."""

import uuid
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from cold_tier.errors import StoreMisconfigured
from cold_tier.objects.memory import MemoryStore
from cold_tier.objects.retrying import RetryingStore, RetryPolicy
from cold_tier.objects.store import ObjectStore


@dataclass(frozen=True, slots=True)
class StoreSettings:
    bucket: str = field(
        default="",
        metadata={"doc": "Where sealed segments go: file:///path or s3://bucket/prefix; empty: nowhere."},
    )
    s3_endpoint: str = field(default="", metadata={"doc": "Address of an S3-compatible store; empty means Amazon S3."})
    s3_region: str = field(default="", metadata={"doc": "AWS region; empty means the usual AWS chain."})
    retry: RetryPolicy = field(default_factory=RetryPolicy)


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


def open_store(settings: StoreSettings) -> RetryingStore:
    return RetryingStore(_raw_store(settings), settings.retry)


async def probe(store: RetryingStore) -> Capabilities:
    """Try on one small object what safety and speed rest on; leaves nothing behind."""
    key = f"_tierlog/probe/{uuid.uuid4()}"
    try:
        await store.put(key, b"0123456789")
        ranged = bytes(await store.get(key, 3, 4)) == b"3456"
        created_again = await store.put_if_absent(key, b"other")
        return Capabilities(ranged_get=ranged, put_if_absent=not created_again)
    finally:
        await store.delete([key])


def _raw_store(settings: StoreSettings) -> ObjectStore:
    url = urlsplit(settings.bucket)
    match url.scheme:
        case "file" if url.path.startswith("/") and url.netloc in ("", "localhost"):
            from cold_tier.objects.directory import DirectoryStore

            return DirectoryStore(unquote(url.path))
        case "s3" if url.netloc:
            from cold_tier.objects.s3 import S3Store

            return S3Store(
                url.netloc,
                url.path,
                endpoint=settings.s3_endpoint or None,
                region=settings.s3_region or None,
                timeout_ms=settings.retry.deadline_ms,
            )
        case "memory":
            return MemoryStore()
        case _:
            raise StoreMisconfigured(
                f"{settings.bucket!r} is not a bucket",
                hint="use file:///absolute/path or s3://bucket/prefix",
            )
