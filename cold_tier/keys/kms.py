"""Master keys that AWS KMS holds. They never leave it: KMS itself encrypts and decrypts data keys.

Credentials and address come from the usual AWS chain (`AWS_ENDPOINT_URL_KMS` for another address). Calls block, so they
are made in threads or in the worker process.
"""

import base64
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from cold_tier.errors import CorruptObject, KeyMissing, KeyShredded, KeyStoreUnavailable

T = TypeVar("T")

PREFIX: Final = "aws-kms:"
_GONE: Final = frozenset({"KMSInvalidStateException"})
"""Its deletion is scheduled. A key that is only disabled may come back."""
_LATER: Final = {"ThrottlingException", "DependencyTimeoutException", "KMSInternalException", "KeyUnavailableException"}


class AwsKms:
    def __init__(self, region: str | None = None) -> None:
        self._region = region
        self._clients: dict[str | None, Any] = {}

    def resolve(self, name: str) -> str:
        """Returns the name with the key's own address in it, so that an alias that moves changes nothing stored."""
        found = self._call(name, lambda client: client.describe_key(KeyId=_id(name)))["KeyMetadata"]
        if found["KeyState"] in ("PendingDeletion", "PendingReplicaDeletion"):
            raise shredded(name)
        return f"{PREFIX}{found['Arn']}"

    def wrap(self, data_key: bytes, master: str) -> str:
        answer = self._call(master, lambda client: client.encrypt(KeyId=_id(master), Plaintext=data_key))
        return base64.b64encode(answer["CiphertextBlob"]).decode()

    def unwrap(self, wrapped: str, master: str) -> bytes:
        try:
            blob = base64.b64decode(wrapped, validate=True)
        except ValueError as error:
            raise CorruptObject("its data key is no base64", hint="somebody changed the object") from error
        # With the key named, KMS refuses a blob that another key encrypted. A key that wrapped one was there: if it is
        # unknown now, it is deleted.
        answer = self._call(
            master,
            lambda client: client.decrypt(KeyId=_id(master), CiphertextBlob=blob),
            gone=_GONE | {"NotFoundException"},
        )
        plain: bytes = answer["Plaintext"]
        return plain

    def schedule_deletion(self, master: str, days: int) -> None:
        key_id = _id(master).rpartition("/")[2]
        self._call(master, lambda client: client.schedule_key_deletion(KeyId=key_id, PendingWindowInDays=days))

    def _call(self, name: str, call: Callable[[Any], T], gone: frozenset[str] = _GONE) -> T:
        # Only users of AWS KMS wait for this import.
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call(self._client(name))
        except ClientError as error:
            _fail(name, error, gone)
        except BotoCoreError as error:
            raise KeyStoreUnavailable(
                f"AWS KMS does not answer: {error}", where=name, hint="check the network"
            ) from error

    def _client(self, name: str) -> Any:
        import boto3

        parts = _id(name).split(":")
        region = parts[3] if parts[0] == "arn" and len(parts) > 3 else self._region
        if region not in self._clients:
            self._clients[region] = boto3.Session().client("kms", region_name=region or None)
        return self._clients[region]


def shredded(name: str) -> KeyShredded:
    return KeyShredded(
        f"the key {name!r} is destroyed, so what it encrypted cannot be read any more",
        hint="offsets and times can still be read; newer records are readable if they have another key",
    )


def _id(name: str) -> str:
    return name.removeprefix(PREFIX)


def _fail(name: str, error: Any, gone: frozenset[str]) -> NoReturn:
    code = error.response.get("Error", {}).get("Code", "")
    if code in gone:
        raise shredded(name) from error
    if code in _LATER:
        raise KeyStoreUnavailable(f"AWS KMS cannot answer now ({code})", where=name, hint="try again later") from error
    hint = "allow kms:Encrypt, kms:Decrypt and kms:DescribeKey on it to the credentials in use, or check its name"
    raise KeyMissing(f"AWS KMS does not give the key {name!r}: {code}", hint=hint) from error
