"""The keys of an identity provider: read, read again, kept for a while, and gone."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from joserfc import jwt

from gateway.tokens import key_source, tokens
from gateway.tokens.check import TokenRefused, UnknownKey
from gateway.tokens.key_set import MAX_BYTES
from gateway.tokens.settings import OauthSettings
from gateway.tokens.tokens import Tokens
from hot_tier.errors import SettingsError
from tests.support.certificates import Authority
from tests.support.identity_provider import AUDIENCE, ISSUER, Provider, ProviderServer, make_key
from tests.support.waiting import until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
async def provider(authority: Authority) -> AsyncIterator[ProviderServer]:
    async with ProviderServer(authority.issue("provider")) as served:
        yield served


def by_discovery(provider: ProviderServer, authority: Authority, **more: int) -> OauthSettings:
    return OauthSettings(discovery_url=provider.discovery_url, ca=authority.ca, audience=(AUDIENCE,), **more)


@asynccontextmanager
async def opened(settings: OauthSettings) -> AsyncIterator[Tokens]:
    made = Tokens(settings)
    made.start()
    yield made
    await made.stop()


async def test_a_provider_is_discovered(provider: ProviderServer, authority: Authority) -> None:
    async with opened(by_discovery(provider, authority)) as made:
        # The first login waits for the first keys.
        assert (await made.check(provider.token())).user == "ada"
        assert made.trouble is None
        with pytest.raises(TokenRefused, match="another issuer"):
            await made.check(provider.token(iss=ISSUER))


async def test_a_new_key_is_fetched_once_and_early(
    provider: ProviderServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(by_discovery(provider, authority)) as made:
        await made.check(provider.token())
        provider.keys["two"] = make_key("two")
        with pytest.raises(TokenRefused, match="no key"):
            await made.check(provider.token(kid="two"))
        assert provider.asked == 1, "keys were fetched a moment ago"
        monkeypatch.setattr(tokens, "EARLY_S", 0.5)
        await asyncio.sleep(0.6)
        found = await asyncio.gather(*(made.check(provider.token(kid="two")) for _ in range(20)))
        assert {each.user for each in found} == {"ada"}
        assert provider.asked == 2
        # Whoever makes up key ids does not make us ask the provider.
        key = provider.keys["one"]
        made_up = [jwt.encode({"alg": "RS256", "kid": f"k{number}"}, {}, key) for number in range(20)]
        refused = await asyncio.gather(*map(made.check, made_up), return_exceptions=True)
        assert {type(each) for each in refused} == {UnknownKey}
        assert provider.asked == 2


async def test_a_provider_that_is_away(provider: ProviderServer, authority: Authority) -> None:
    provider.fails = True
    async with opened(by_discovery(provider, authority, refresh_ms=100, grace_ms=600)) as made:
        with pytest.raises(TokenRefused, match="cannot be read"):
            await made.check(provider.token())
        assert "answered 500" in str(made.trouble)
        provider.fails = False
        await until(lambda: made.trouble is None)
        assert (await made.check(provider.token())).user == "ada"
        provider.fails = True
        await until(lambda: made.trouble is not None)
        assert (await made.check(provider.token())).user == "ada", "known keys go on"
        assert "cannot be read again" in str(made.trouble)
        await until(lambda: made.found is None)
        with pytest.raises(TokenRefused, match="cannot be read"):
            await made.check(provider.token())
        assert "are refused" in str(made.trouble)


async def test_a_key_that_is_taken_out_ends(provider: ProviderServer, authority: Authority) -> None:
    async with opened(by_discovery(provider, authority, refresh_ms=100)) as made:
        token = provider.token()
        await made.check(token)
        provider.keys = {"two": make_key("two")}
        before = provider.asked
        await until(lambda: provider.asked > before + 1)
        with pytest.raises(TokenRefused, match="no key"):
            await made.check(token)


@pytest.mark.parametrize(
    ("said", "why"), [(b"<html>", "not a JWK set"), (b'{"keys":[]}', "no public key"), (b"x" * MAX_BYTES * 2, "more")]
)
async def test_answers_that_are_no_keys(provider: ProviderServer, authority: Authority, said: bytes, why: str) -> None:
    provider.said = said
    settings = OauthSettings(jwks_url=f"{provider.url}/keys", ca=authority.ca, issuer=ISSUER, audience=(AUDIENCE,))
    async with opened(settings) as made:
        with pytest.raises(TokenRefused):
            await made.check(provider.token())
        assert why in str(made.trouble)


async def test_addresses_that_give_no_keys(provider: ProviderServer, authority: Authority) -> None:
    right = by_discovery(provider, authority)
    for wrong, why in (
        (replace(right, issuer="https://other.example"), "describes the issuer"),
        (replace(right, ca=""), "certificate"),
        (replace(right, discovery_url=f"{provider.url}/keys"), "not a provider's description"),
        (replace(right, discovery_url="https://127.0.0.1:9/x"), "cannot be fetched"),
    ):
        async with opened(wrong) as made:
            with pytest.raises(TokenRefused):
                await made.check(provider.token())
            assert why in str(made.trouble), made.trouble


async def test_a_silent_provider_holds_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_source, "FETCH_S", 0.3)

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(keep_silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = OauthSettings(jwks_url=f"http://127.0.0.1:{port}/", issuer=ISSUER, audience=(AUDIENCE,))
    async with opened(settings) as made:
        began = time.monotonic()
        with pytest.raises(TokenRefused):
            await made.check(Provider().token())
        assert time.monotonic() - began < 2
        assert "does not answer" in str(made.trouble)
    server.close()


async def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "LOOK_S", 0.05)
    monkeypatch.setattr(tokens, "EARLY_S", 60.0)
    first, second = Provider(), Provider()
    file = tmp_path / "keys.json"
    file.write_bytes(first.jwks())
    async with opened(OauthSettings(jwks_file=str(file), issuer=ISSUER, audience=(AUDIENCE,), refresh_ms=1)) as made:
        assert (await made.check(first.token())).user == "ada"
        file.write_bytes(b"broken")
        await until(lambda: made.trouble is not None)
        assert (await made.check(first.token())).user == "ada"
        (tmp_path / "new").write_bytes(second.jwks())
        (tmp_path / "new").rename(file)
        await until(lambda: made.trouble is None)
        assert (await made.check(second.token())).user == "ada"
        with pytest.raises(TokenRefused, match="signature"):
            await made.check(first.token())


@pytest.mark.parametrize("said", [None, b"", b"{}", b'{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}'])
def test_a_wrong_file_ends_the_start(tmp_path: Path, said: bytes | None) -> None:
    file = tmp_path / "keys.json"
    if said is not None:
        file.write_bytes(said)
    with pytest.raises(SettingsError) as refused:
        Tokens(OauthSettings(jwks_file=str(file), issuer=ISSUER, audience=(AUDIENCE,)))
    assert str(file) in str(refused.value)
    with pytest.raises(SettingsError, match=r"oauth\.ca"):
        Tokens(OauthSettings(jwks_url="https://x/", ca=str(file), issuer=ISSUER, audience=(AUDIENCE,)))
