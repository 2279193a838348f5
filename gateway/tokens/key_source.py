"""Where the identity provider's keys are read from: a file, an address, or the address of the provider's description.

What is fetched is bounded in size and time, comes by TLS, and follows no redirect. Fetching does not hold the loop.
"""

import asyncio
import ssl
from typing import Any, Final, NamedTuple

import aiohttp
import orjson

from gateway.tokens.key_set import MAX_BYTES, BadKeySet, KeySet, read_key_set
from gateway.tokens.settings import OauthSettings, check_address
from hot_tier.errors import SettingsError

FETCH_S: Final = 5.0


class NoKeys(Exception):
    """The keys cannot be had now. The text says why."""


class Found(NamedTuple):
    keys: KeySet
    issuer: str


class KeySource:
    def __init__(self, settings: OauthSettings) -> None:
        """Raises SettingsError if a file cannot be used."""
        self._settings = settings
        self._tls = ssl.create_default_context()
        if settings.ca:
            try:
                self._tls = ssl.create_default_context(cafile=settings.ca)
            except OSError as error:
                why = "is not PEM" if isinstance(error, ssl.SSLError) else f"cannot be read: {error.strerror}"
                hint = "name a readable file of certificates"
                raise SettingsError(why, where=f"oauth.ca ({settings.ca})", hint=hint) from None
        self.where = settings.discovery_url or settings.jwks_url or settings.jwks_file

    @property
    def is_file(self) -> bool:
        return bool(self._settings.jwks_file)

    def read_file(self) -> Found:
        """Raises NoKeys."""
        try:
            with open(self._settings.jwks_file, "rb") as file:
                return Found(read_key_set(file.read(MAX_BYTES + 1)), self._settings.issuer)
        except OSError as error:
            raise NoKeys(f"{self.where} cannot be read: {error.strerror}") from None
        except BadKeySet as error:
            raise NoKeys(f"{self.where}: {error}") from None

    async def read(self) -> Found:
        """Raises NoKeys."""
        if self.is_file:
            return await asyncio.to_thread(self.read_file)
        try:
            async with (
                asyncio.timeout(FETCH_S),
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls)) as session,
            ):
                return await self._fetch(session)
        except TimeoutError:
            raise NoKeys(f"{self.where} does not answer within {FETCH_S:.0f} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoKeys(f"{self.where} cannot be fetched: {error or type(error).__name__}") from None

    async def _fetch(self, session: aiohttp.ClientSession) -> Found:
        address, issuer = self._settings.jwks_url, self._settings.issuer
        if self._settings.discovery_url:
            address, issuer = self._described(await _get(session, self._settings.discovery_url))
        try:
            return Found(read_key_set(await _get(session, address)), issuer)
        except BadKeySet as error:
            raise NoKeys(f"{address}: {error}") from None

    def _described(self, data: bytes) -> tuple[str, str]:
        """Returns where the keys are, and the issuer."""
        where, wanted = self._settings.discovery_url, self._settings.issuer
        try:
            said: Any = orjson.loads(data)
        except ValueError:
            said = None
        address, issuer = (said.get("jwks_uri"), said.get("issuer")) if isinstance(said, dict) else (None, None)
        if not isinstance(address, str) or not isinstance(issuer, str) or not issuer:
            raise NoKeys(f"{where} is not a provider's description: it has no `issuer` and `jwks_uri`")
        if wanted and issuer != wanted:
            raise NoKeys(f"{where} describes the issuer {issuer!r}, and oauth.issuer is {wanted!r}")
        try:
            check_address(address, "jwks_uri")
        except SettingsError as error:
            raise NoKeys(f"{where}: {error.what}") from None
        return address, issuer


async def _get(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as reply:
        if reply.status != 200:
            raise NoKeys(f"{url} answered {reply.status}")
        data = bytearray()
        async for piece in reply.content.iter_any():
            data += piece
            if len(data) > MAX_BYTES:
                raise NoKeys(f"{url} answered with more than {MAX_BYTES} bytes")
        return bytes(data)
