"""The development authority: what is made, kept, renewed and refused."""

import os
import ssl
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

import tierlog.certificates
from hot_tier.clock import wall_ms
from hot_tier.errors import SettingsError
from tierlog.certificates import RENEW_BEFORE, VALID, Wanted, prepare_certificates
from tierlog.cli.app import run

WANTED = [Wanted("broker", ("localhost", "127.0.0.1", "bücher.example")), Wanted("admin")]


def prepare(directory: Path) -> list[str]:
    return [each.what for each in prepare_certificates(directory, WANTED)]


def content(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


def later(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    at = wall_ms() + int(by.total_seconds() * 1000)
    monkeypatch.setattr(tierlog.certificates, "wall_ms", lambda: at)


def test_made_once_for_the_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert prepare(tmp_path / "tls") == ["made", "made", "made"]
    finally:
        os.umask(before)
    first = content(tmp_path / "tls")
    assert sorted(first) == ["admin.key", "admin.pem", "broker.key", "broker.pem", "ca.key", "ca.pem"]
    for name in first:
        mode = stat.S_IMODE((tmp_path / "tls" / name).stat().st_mode)
        assert mode == (0o600 if name.endswith(".key") else 0o644), name
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert prepare(tmp_path / "tls") == ["kept", "kept", "kept"]
    assert content(tmp_path / "tls") == first


def test_both_sides_trust_them(tmp_path: Path) -> None:
    prepare(tmp_path)
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=str(tmp_path / "ca.pem")),
    )
    server.load_cert_chain(tmp_path / "broker.pem", tmp_path / "broker.key")
    server.load_verify_locations(tmp_path / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client.load_cert_chain(tmp_path / "admin.pem", tmp_path / "admin.key")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("127.0.0.1", "localhost", "bücher.example"):
        ends = [(ssl.MemoryBIO(), ssl.MemoryBIO())]
        one = client.wrap_bio(*ends[0], server_hostname=name)
        other = server.wrap_bio(ends[0][1], ends[0][0], server_side=True)
        for _ in range(3):
            for side in (one, other):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    pass
        assert one.version() == other.version() == "TLSv1.3"
        assert other.getpeercert()["subject"] == ((("commonName", "admin"),),)  # type: ignore[index]


def test_what_runs_out_is_signed_anew_for_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    first = content(tmp_path)
    later(monkeypatch, VALID - RENEW_BEFORE - timedelta(days=1))
    assert prepare(tmp_path) == ["kept", "kept", "kept"]
    later(monkeypatch, VALID - RENEW_BEFORE + timedelta(days=1))
    assert prepare(tmp_path) == ["kept", "renewed", "renewed"]
    now = content(tmp_path)
    assert {name for name in now if now[name] != first[name]} == {"broker.pem", "admin.pem"}
    ends = x509.load_pem_x509_certificate(now["broker.pem"]).not_valid_after_utc
    assert ends > x509.load_pem_x509_certificate(first["broker.pem"]).not_valid_after_utc
    later(monkeypatch, 3 * VALID)
    assert prepare(tmp_path) == ["kept", "renewed", "renewed"]


def test_the_authority_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    later(monkeypatch, tierlog.certificates.CA_VALID - timedelta(days=10))
    assert prepare(tmp_path) == ["kept", "renewed", "renewed"]
    first = content(tmp_path)
    assert prepare(tmp_path) == ["kept", "kept", "kept"], "what ends with the authority cannot be renewed"
    later(monkeypatch, tierlog.certificates.CA_VALID + timedelta(days=1))
    with pytest.raises(SettingsError, match="the authority ended on"):
        prepare(tmp_path)
    assert content(tmp_path) == first


def test_a_new_name_is_added(tmp_path: Path) -> None:
    prepare(tmp_path)
    more = [Wanted("broker", ("10.1.2.3", "localhost"))]
    _, broker = prepare_certificates(tmp_path, more)
    assert (broker.what, broker.hosts) == ("renewed", ("10.1.2.3", "localhost", "127.0.0.1", "xn--bcher-kva.example"))
    assert [each.what for each in prepare_certificates(tmp_path, [*more, *WANTED])] == ["kept"] * 4


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("ca.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is no certificate in PEM"),
        ("broker.pem", b"", "is no certificate in PEM"),
        ("broker.key", b"not a key", "is no EC key"),
        ("broker.key", None, "has no private key beside it"),
        ("broker.key", "admin.key", "is not the key of the certificate"),
        ("ca.key", "admin.key", "is not the key of"),
        ("ca.key", None, "the authority's key is not there"),
        ("broker.pem", "strange", "was not signed by"),
    ],
)
def test_what_does_not_fit_is_said_and_left_alone(
    name: str, data: bytes | str | None, said: str, tmp_path: Path
) -> None:
    prepare(tmp_path)
    if data == "strange":
        (tmp_path / "broker.pem").write_bytes(_signed_elsewhere(tmp_path))
    elif data is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes((tmp_path / data).read_bytes() if isinstance(data, str) else data)
    with pytest.raises(SettingsError, match=said):
        prepare_certificates(tmp_path, [*WANTED, Wanted("another")])


def _signed_elsewhere(directory: Path) -> bytes:
    """A certificate for the same key, by another authority."""
    other = directory / "other"
    other.mkdir()
    (other / "broker.key").write_bytes((directory / "broker.key").read_bytes())
    prepare_certificates(other, WANTED)
    return (other / "broker.pem").read_bytes()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tls", "init", "--dir", str(tmp_path / "tls"), "--host", "broker1.example.org"]
    assert run(arguments) == 0
    assert "broker1.example.org" in capsys.readouterr().out
    assert run([*arguments, "--json"]) == 0
    assert capsys.readouterr().out.count('"what": "kept"') == 3
    assert run([*arguments, "--host", "no host"]) == 2
    assert "'no host' is neither" in capsys.readouterr().err
