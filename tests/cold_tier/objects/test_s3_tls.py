"""An S3 server whose certificate an authority of one's own has signed, named by SSL_CERT_FILE."""

import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from cold_tier.errors import StoreMisconfigured
from cold_tier.objects.open import StoreSettings, open_store, probe
from tests.support.certificates import Authority
from tests.support.s3 import credentials


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def endpoint(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    files = authority.issue("s3", "127.0.0.1")
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=True, ssl_context=tuple(files))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


async def test_it_is_trusted_by_its_authority_alone(
    endpoint: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = StoreSettings(bucket="s3://logs", s3_endpoint=endpoint)
    boto3.client("s3", endpoint_url=endpoint, verify=authority.ca, region_name="us-east-1").create_bucket(Bucket="logs")
    for ca in (None, Authority(tmp_path / "strange").ca):
        if ca is not None:
            monkeypatch.setenv("SSL_CERT_FILE", ca)
        stranger = open_store(settings)
        with pytest.raises(StoreMisconfigured, match="TLS certificate is not trusted"):
            await probe(stranger)
        await stranger.close()
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    store = open_store(settings)
    assert (await probe(store)).put_if_absent
    await store.close()
