"""What S3 is asked to encrypt: every object, however it is put. And AWS KMS as the holder of master keys."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from cold_tier.errors import KeyMissing, KeyShredded, StoreUnavailable
from cold_tier.keys.kms import AwsKms
from cold_tier.keys.master import MasterKeys, name_of
from cold_tier.objects.open import StoreSettings, open_store
from hot_tier.errors import SettingsError


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", address)
    yield address
    server.stop()


async def put_every_way(settings: StoreSettings, folder: Path) -> None:
    """One part, several parts (more than 16 MiB), and only if absent."""
    store = open_store(settings)
    await store.put("put", b"1")
    await store.put_if_absent("absent", b"2")
    large = folder / "large"
    large.write_bytes(bytes(17 << 20))
    await store.put_file("parts", str(large))
    await store.close()


class _Recorder(BaseHTTPRequestHandler):
    """An S3 server that takes everything and keeps what it was asked to encrypt."""

    seen: ClassVar[dict[tuple[str, str], tuple[str | None, str | None]]] = {}

    def _take(self, answer: bytes = b"") -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        asked = "x-amz-server-side-encryption"
        self.seen[self.command, self.path] = self.headers.get(asked), self.headers.get(f"{asked}-aws-kms-key-id")
        self.send_response(200)
        self.send_header("ETag", '"x"')
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_PUT(self) -> None:
        self._take()

    def do_POST(self) -> None:
        begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
        ended = b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
        self._take(begun if "uploads" in self.path else ended)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("sse", "key", "asked"),
    [
        ("none", "", (None, None)),
        ("AES256", "", ("AES256", None)),
        ("aws:kms", "", ("aws:kms", None)),
        ("aws:kms", "arn:aws:kms:eu-west-1:1:key/k", ("aws:kms", "arn:aws:kms:eu-west-1:1:key/k")),
    ],
)
async def test_every_put_asks_for_it(aws: str, tmp_path: Path, sse, key: str, asked) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    await put_every_way(StoreSettings("s3://bucket", s3_endpoint=address, sse=sse, sse_kms_key_id=key), tmp_path)
    server.shutdown()
    server.server_close()
    for request in (("PUT", "/bucket/put"), ("PUT", "/bucket/absent"), ("POST", "/bucket/parts?uploads=")):
        assert _Recorder.seen.pop(request) == asked


def test_settings_that_ask_for_nothing_are_refused() -> None:
    with pytest.raises(SettingsError, match="not in S3"):
        StoreSettings("file:///b", sse="AES256")
    with pytest.raises(SettingsError, match=r"needs store\.sse"):
        StoreSettings("s3://b", sse="AES256", sse_kms_key_id="k")


def test_kms_wraps_data_keys_until_its_key_is_destroyed(aws: str) -> None:
    client = boto3.client("kms", region_name="us-east-1")
    one, other = (client.create_key()["KeyMetadata"]["Arn"] for _ in range(2))
    client.create_alias(AliasName="alias/orders", TargetKeyId=one)
    keys = MasterKeys(region="us-east-1")
    master = keys.newest("aws-kms:alias/orders")
    assert master == f"aws-kms:{one}" == name_of(master)
    wrapped = keys.wrap(b"k" * 32, master)
    assert keys.unwrap(wrapped, master) == b"k" * 32
    with pytest.raises(KeyMissing):
        keys.unwrap(wrapped, f"aws-kms:{other}")
    with pytest.raises(KeyMissing, match="alias/none"):
        keys.newest("aws-kms:alias/none")
    keys.schedule_deletion(master, 7)
    assert client.describe_key(KeyId=one)["KeyMetadata"]["KeyState"] == "PendingDeletion"
    epoch = keys.epoch
    for _ in range(2):
        with pytest.raises(KeyShredded):
            keys.newest("aws-kms:alias/orders")
    assert keys.epoch == epoch + 1  # Once: so that what it decrypted is dropped.


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("KMSInvalidStateException", KeyShredded),
        ("NotFoundException", KeyShredded),
        ("DisabledException", KeyMissing),
        ("AccessDenied", KeyMissing),
        ("ThrottlingException", StoreUnavailable),
    ],
)
def test_what_kms_refuses_is_told_apart(code: str, error: type[Exception]) -> None:
    """moto decrypts with a key that is about to be deleted; AWS answers as here."""
    kms = AwsKms("us-east-1")

    class Client:
        def decrypt(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": code}}, "Decrypt")

    kms._clients["us-east-1"] = Client()
    with pytest.raises(error, match="alias/orders") as raised:
        kms.unwrap("AAAA", "aws-kms:alias/orders")
    assert type(raised.value) is error or error is StoreUnavailable
