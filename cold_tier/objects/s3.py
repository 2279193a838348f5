"""S3 and every store that speaks its protocol (`s3://bucket/prefix`), through obstore.

Requests are signed, sent and received in obstore's own threads; the event loop only awaits them. Credentials come from
the usual AWS chain (environment, profile, web identity, container, instance) through boto3. Each call makes one
attempt. obstore's own retries are off, because `cold_tier.objects.bucket` retries.
docs/decisions/object-store-client.md has the measurement against aiobotocore.
"""

import os
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store as Bucket

from cold_tier.errors import ObjectMissing, StoreDenied, StoreMisconfigured, StoreUnavailable
from cold_tier.objects.s3_errors import failure, status_of
from cold_tier.objects.store import Buffer, ObjectInfo

_STREAM_BYTES = 1 << 20
_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4


class S3Store:
    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        timeout_ms: int = 30_000,
        sse: str = "",
        sse_kms_key_id: str = "",
    ) -> None:
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.url = f"s3://{bucket}/{self._prefix}"
        options: dict[str, Any] = {
            "virtual_hosted_style_request": endpoint is None,
            "region": region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        }
        if endpoint is not None:
            options["endpoint"] = endpoint
        if sse:
            options["server_side_encryption"] = sse
        if sse_kms_key_id:
            options["sse_kms_key_id"] = sse_kms_key_id
        try:
            self._bucket = Bucket(
                bucket,
                **options,
                credential_provider=_credentials(self.url),
                client_options={
                    "allow_http": endpoint is not None and endpoint.startswith("http://"),
                    "timeout": timedelta(milliseconds=timeout_ms),
                    "connect_timeout": timedelta(seconds=5),
                },
                retry_config={"max_retries": 0, "retry_timeout": timedelta(milliseconds=timeout_ms)},
            )
        except (BaseError, ValueError) as error:
            raise StoreMisconfigured(
                str(error).splitlines()[0], where=self.url, hint="check --bucket and --s3-endpoint"
            ) from error

    async def put(self, key: str, data: Buffer) -> None:
        await self._put(key, data, "overwrite")

    async def put_if_absent(self, key: str, data: Buffer) -> bool:
        try:
            await self._put(key, data, "create")
        except (AlreadyExistsError, PreconditionError) as error:
            if status_of(error) == 409:
                # ConditionalRequestConflict: another request on this key was under way, so nothing was written.
                raise StoreUnavailable("another write of this object is under way", where=f"{self.url}{key}") from error
            return False
        return True

    async def put_file(self, key: str, path: str) -> None:
        size = os.path.getsize(path)
        try:
            with open(path, "rb") as file:
                await obstore.put_async(
                    self._bucket,
                    self._prefix + key,
                    file,
                    use_multipart=size > _PART_BYTES,
                    # S3 allows at most 10,000 parts.
                    chunk_size=max(_PART_BYTES, size // 9_000),
                    max_concurrency=_PARTS_AT_ONCE,
                )
        except (BaseError, OSError) as error:
            self._fail(key, error, "s3:PutObject")

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[Buffer]:
        if length == 0:
            if await self.head(key) is None:
                raise ObjectMissing("no such object", where=f"{self.url}{key}")
            return
        span: Any = {"offset": start} if length is None else (start, start + length)
        try:
            result = await obstore.get_async(self._bucket, self._prefix + key, options={"range": span})
            async for chunk in result.stream(min_chunk_size=_STREAM_BYTES):
                yield memoryview(chunk)
        except (BaseError, OSError) as error:
            if status_of(error) == 416:
                return
            self._fail(key, error, "s3:GetObject")

    async def head(self, key: str) -> ObjectInfo | None:
        try:
            return self._info(await obstore.head_async(self._bucket, self._prefix + key))
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            self._fail(key, error, "s3:GetObject")

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        try:
            pages = obstore.list(
                self._bucket,
                self._prefix + prefix,
                offset=self._prefix + start_after if start_after else None,
                chunk_size=1000,
            )
            async for page in pages:
                for meta in page:
                    yield self._info(meta)
        except (BaseError, OSError) as error:
            self._fail(prefix, error, "s3:ListBucket")

    async def folders(self, prefix: str) -> Sequence[str]:
        try:
            found = await obstore.list_with_delimiter_async(self._bucket, self._prefix + prefix)
        except (BaseError, OSError) as error:
            self._fail(prefix, error, "s3:ListBucket")
        return [folder.rstrip("/").rpartition("/")[2] for folder in found["common_prefixes"]]

    async def delete(self, keys: Sequence[str]) -> None:
        try:
            await obstore.delete_async(self._bucket, [self._prefix + key for key in keys])
        except FileNotFoundError:
            pass
        except (BaseError, OSError) as error:
            self._fail(keys[0], error, "s3:DeleteObject")

    async def close(self) -> None:
        pass

    async def _put(self, key: str, data: Buffer, mode: Any) -> None:
        try:
            await obstore.put_async(self._bucket, self._prefix + key, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            raise
        except (BaseError, OSError) as error:
            self._fail(key, error, "s3:PutObject")

    def _info(self, meta: Any) -> ObjectInfo:
        key = meta["path"].removeprefix(self._prefix)
        return ObjectInfo(key, meta["size"], int(meta["last_modified"].timestamp() * 1000))

    def _fail(self, key: str, error: BaseException, permission: str) -> NoReturn:
        raise failure(error, f"{self.url}{key}", permission) from error


def _credentials(url: str) -> Any:
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session()
    if session.get_credentials() is None:
        raise StoreDenied(
            "no AWS credentials were found",
            where=url,
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or run with an instance role",
        )
    return Boto3CredentialProvider(session)
