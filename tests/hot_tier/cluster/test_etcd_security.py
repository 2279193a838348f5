"""etcd behind TLS with client certificates, and etcd that asks for a user."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from gateway.tls import Identity
from hot_tier.cluster import etcd_client
from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.etcd_settings import EtcdSettings
from hot_tier.cluster.open import metadata_store
from hot_tier.cluster.store import Event, Put
from hot_tier.errors import MetadataUnavailable
from tests.support.etcd import EtcdCluster, Tls, etcd_cluster

DEADLINE_S = 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "OPERATION_S", 2.0)


@asynccontextmanager
async def opened(url: str, settings: EtcdSettings) -> AsyncIterator[EtcdStore]:
    store = metadata_store(url, settings, "")
    assert isinstance(store, EtcdStore)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# TLS


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """Certificates without a common name: etcd's gateway refuses those that have one as soon as users are on."""
    folder = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    files = Tls(*(folder / f"{name}.pem" for name in ("ca", "cert", "key", "client-cert", "client-key")))
    ca.cert_pem.write_to_path(files.ca)
    for issued, cert, key in (
        (ca.issue_cert("127.0.0.1"), files.cert, files.key),
        (ca.issue_cert("broker.test"), files.client_cert, files.client_key),
    ):
        issued.private_key_pem.write_to_path(key)
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return files


@pytest.fixture(scope="module")
def secured(tls: Tls) -> Iterator[EtcdCluster]:
    with etcd_cluster(1, tls) as cluster:
        yield cluster


def with_certificates(tls: Tls) -> EtcdSettings:
    return EtcdSettings(ca=str(tls.ca), cert=str(tls.client_cert), key=str(tls.client_key))


async def test_all_of_it_works_over_tls(secured: EtcdCluster, tls: Tls) -> None:
    async with opened(secured.url, with_certificates(tls)) as store:
        start = (await store.range("")).revision
        lease = await store.grant_lease(60_000)
        revision = await store.transact([], [Put("a", b"1", lease)])
        assert revision is not None
        assert await store.keep_alive(lease)
        async with asyncio.timeout(DEADLINE_S):
            assert await anext(store.watch("", start)) == (Event("a", b"1", revision),)


async def test_a_server_that_another_authority_vouches_for_is_refused(
    secured: EtcdCluster, tls: Tls, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    settings = EtcdSettings(ca=str(tmp_path / "other.pem"), cert=str(tls.client_cert), key=str(tls.client_key))
    with pytest.raises(MetadataUnavailable, match="certificate verify failed"):
        async with opened(secured.url, settings):
            pass


async def test_a_client_without_a_certificate_is_refused(secured: EtcdCluster, tls: Tls) -> None:
    with pytest.raises(MetadataUnavailable):
        async with opened(secured.url, EtcdSettings(ca=str(tls.ca))):
            pass


def test_the_context_checks_names(tls: Tls) -> None:
    store = metadata_store("etcd://127.0.0.1:1", with_certificates(tls), "")
    assert isinstance(store, EtcdStore)
    context = store._client._tls
    assert context is not None and context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED


async def test_a_certificate_is_renewed_without_a_restart(tmp_path: Path) -> None:
    """The broker's own certificate for etcd ends while it runs; a file that takes its place is used."""
    ca = trustme.CA()
    files = Tls(*(tmp_path / f"{name}.pem" for name in ("ca", "cert", "key", "client-cert", "client-key")))
    ca.cert_pem.write_to_path(files.ca)

    def issue(cert: Path, key: Path, host: str, ends: datetime | None) -> None:
        issued = ca.issue_cert(host, not_after=ends)
        issued.private_key_pem.write_to_path(key)
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    issue(files.cert, files.key, "127.0.0.1", None)
    issue(files.client_cert, files.client_key, "broker.test", None)
    with etcd_cluster(1, files) as cluster:
        ends = datetime.now(UTC) + timedelta(seconds=4)
        issue(files.client_cert, files.client_key, "broker.test", ends)
        given = with_certificates(files)
        identity = Identity(given.cert, given.key, given.ca, "etcd.cert")
        tls = identity.call()

        async def try_it() -> None:
            store = metadata_store(cluster.url, given, "", tls)
            assert isinstance(store, EtcdStore)
            try:
                await store.open()
            finally:
                await store.close()

        await try_it()
        await asyncio.sleep((ends - datetime.now(UTC)).total_seconds() + 1.1)
        with pytest.raises(MetadataUnavailable):
            await try_it()
        issue(files.client_cert, files.client_key, "broker.test", None)
        identity.refresh()
        await try_it()


# Users


@pytest.fixture
def guarded() -> Iterator[EtcdCluster]:
    """`broker` may touch what begins with /mine/ and nothing else."""
    with etcd_cluster(1) as cluster:
        call = cluster.members[0].call
        call("/v3/auth/user/add", {"name": "root", "password": "all"})
        call("/v3/auth/role/add", {"name": "root"})
        call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        call("/v3/auth/user/add", {"name": "broker", "password": "secret"})
        call("/v3/auth/role/add", {"name": "mine"})
        permission = {
            "permType": "READWRITE",
            "key": b64encode(b"/mine/").decode(),
            "range_end": b64encode(b"/mine0").decode(),
        }
        call("/v3/auth/role/grant", {"name": "mine", "perm": permission})
        call("/v3/auth/user/grant", {"user": "broker", "role": "mine"})
        call("/v3/auth/enable", {})
        yield cluster


BROKER = EtcdSettings(user="broker", password="secret")


async def test_a_user_does_what_its_role_allows(guarded: EtcdCluster) -> None:
    async with opened(f"{guarded.url}/mine", BROKER) as store:
        start = (await store.range("")).revision
        lease = await store.grant_lease(60_000)
        revision = await store.transact([], [Put("a", b"1", lease)])
        assert revision is not None
        assert await store.keep_alive(lease)
        async with asyncio.timeout(DEADLINE_S):
            assert await anext(store.watch("", start)) == (Event("a", b"1", revision),)
        await store.revoke_lease(lease)
        assert await store.get("a") is None


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mine", EtcdSettings(user="broker", password="guessed")),
        ("mine", EtcdSettings(user="nobody", password="secret")),
        ("mine", EtcdSettings()),
        ("theirs", BROKER),
    ],
    ids=["wrong password", "unknown user", "no user", "another's keys"],
)
async def test_others_are_refused_with_a_hint(guarded: EtcdCluster, name: str, settings: EtcdSettings) -> None:
    with pytest.raises(MetadataUnavailable, match=r"etcd\.user"):
        async with opened(f"{guarded.url}/{name}", settings):
            pass


async def test_a_token_that_etcd_forgot_is_asked_for_again(guarded: EtcdCluster) -> None:
    """A restarted etcd knows no tokens; neither requests nor the watch notice."""
    (member,) = guarded.members
    async with opened(f"{guarded.url}/mine", BROKER) as store:
        watch = store.watch("", (await store.range("")).revision)
        await store.transact([], [Put("a", b"1")])
        async with asyncio.timeout(DEADLINE_S):
            assert [event.value for event in await anext(watch)] == [b"1"]
            member.kill()
            member.start()
            member.wait_until_ready()
            await store.get("a")
            await store.transact([], [Put("a", b"2")])
            assert [event.value for event in await anext(watch)] == [b"2"]
