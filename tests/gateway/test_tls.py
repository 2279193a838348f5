"""Certificate files: what is wrong with one is said, and a changed one holds for new connections."""

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest
import structlog
import trustme
from cryptography.hazmat.primitives import serialization

from gateway.tls import Identity
from hot_tier.errors import SettingsError
from tests.support.certificates import Authority

WHERE = "tls.certificate, tls.key, tls.ca"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_what_is_wrong_with_a_file_is_said(authority: Authority, tmp_path: Path) -> None:
    files, other = authority.issue("broker"), authority.issue("other")
    text = tmp_path / "text.pem"
    text.write_text("not PEM")
    locked = tmp_path / "locked.key"
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    algorithm = serialization.BestAvailableEncryption(b"secret")
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked.write_bytes(key.private_bytes(encoding, form, algorithm))
    for certificate, key_file, ca, said in (
        (str(tmp_path / "none.pem"), files.key, "", "No such file"),
        (str(text), files.key, "", "is not what it should be"),
        (files.certificate, str(text), "", "is not what it should be"),
        (files.certificate, other.key, "", "the private key is not that of the certificate"),
        (files.certificate, str(locked), "", "a password"),
        (files.certificate, files.key, str(text), "text.pem"),
        (files.certificate, files.key, str(tmp_path / "no-ca.pem"), "No such file"),
    ):
        with pytest.raises(SettingsError) as refused:
            Identity(certificate, key_file, ca, WHERE)
        assert said in str(refused.value)
        assert WHERE in str(refused.value)


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    issued = trustme.CA().issue_cert("broker", not_after=past, not_before=past - datetime.timedelta(days=1))
    certificate, key = tmp_path / "old.pem", tmp_path / "old.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    with pytest.raises(SettingsError, match="valid from"):
        Identity(str(certificate), str(key), "", WHERE)


async def shown(port: int, ca: str) -> bytes:
    context = ssl.create_default_context(cafile=ca)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


async def test_a_changed_certificate_holds_for_new_connections(authority: Authority) -> None:
    files = authority.issue("broker")
    identity = Identity(files.certificate, files.key, authority.ca, WHERE)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=identity.serve("none"))
    async with server:
        port = server.sockets[0].getsockname()[1]
        first = await shown(port, authority.ca)
        identity.refresh()
        assert await shown(port, authority.ca) == first

        authority.issue("broker")
        identity.refresh()
        second = await shown(port, authority.ca)
        assert second != first

        good_key = Path(files.key).read_bytes()
        authority.issue("broker")
        Path(files.key).write_bytes(good_key)
        with structlog.testing.capture_logs() as logged:
            identity.refresh()
        assert [each["event"] for each in logged] == ["the changed certificate cannot be used, the old one stays"]
        assert await shown(port, authority.ca) == second


async def test_files_that_change_while_they_are_read_are_read_again(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = authority.issue("broker")
    identity = Identity(files.certificate, files.key, authority.ca, WHERE)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=identity.serve("none"))
    async with server:
        port = server.sockets[0].getsockname()[1]
        first = await shown(port, authority.ca)
        authority.issue("broker")
        good_key, check = Path(files.key).read_bytes(), Identity._check

        def check_then_change(self: Identity) -> None:
            check(self)
            Path(files.key).write_bytes(Path(authority.issue("other").key).read_bytes())

        with monkeypatch.context() as patch:
            patch.setattr(Identity, "_check", check_then_change)
            identity.refresh()
        Path(files.key).write_bytes(good_key)
        identity.refresh()
        assert await shown(port, authority.ca) != first
