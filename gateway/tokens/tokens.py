"""The keys in use: read at the start, read again in time, and kept for a while if that fails.

- A file must be right at the start. An address may be away then: logins with tokens fail until it answers.
- A token with an unknown key id makes the keys be read early, once for all who wait, and at most every `EARLY_S`.
- Keys that cannot be read again are used for the grace time of the settings. After that all tokens are refused.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

import structlog

from gateway.tokens.check import Token, UnknownKey, check_token
from gateway.tokens.key_source import Found, KeySource, NoKeys
from gateway.tokens.settings import OauthSettings
from hot_tier.clock import steady_s, wall_ms
from hot_tier.errors import SettingsError

EARLY_S: Final = 30.0
RETRY_S: Final = 15.0
LOOK_S: Final = 5.0
"""How often files are checked for changes."""

_log = structlog.get_logger()


class Tokens:
    def __init__(self, settings: OauthSettings, now_ms: Callable[[], int] = wall_ms) -> None:
        """Raises SettingsError if a file of the settings cannot be used."""
        self.settings = settings
        self._now_ms = now_ms
        self._source = KeySource(settings)
        self._found: Found | None = None
        self._read_s = 0.0
        self._tried_s = -EARLY_S
        self._failure = "the keys have not been fetched yet"
        self._reading: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._stamp = self._file_stamp()
        if self._source.is_file:
            try:
                self._took(self._source.read_file())
            except NoKeys as error:
                hint = "write the provider's JWK set there"
                raise SettingsError(str(error), where="oauth.jwks_file", hint=hint) from None

    def start(self) -> None:
        self._keeping = asyncio.get_running_loop().create_task(self._keep(), name="keys of the identity provider")

    async def stop(self) -> None:
        tasks = [each for each in (self._keeping, self._reading) if each is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def trouble(self) -> str | None:
        """Returns why logins with tokens fail now, or will when the grace time is over."""
        if self.found is None:
            return f"logins with tokens are refused: {self._failure}"
        return f"the keys of the identity provider cannot be read again: {self._failure}" if self._failure else None

    @property
    def found(self) -> Found | None:
        """Returns the keys in use. It is another object once they have been read again."""
        if self._source.is_file and not self._failure:
            return self._found  # A file that stays as it is needs no reading.
        return self._found if self._age_ms() < self.settings.refresh_ms + self.settings.grace_ms else None

    async def check(self, token: str) -> Token:
        """Returns whose token it is, and until when. Raises TokenRefused."""
        try:
            return self._check(token)
        except UnknownKey:
            if not self._may_read_early():
                raise
        await asyncio.shield(self._read())
        return self._check(token)

    def _check(self, token: str) -> Token:
        found = self.found
        if found is None:
            raise UnknownKey("the keys of the identity provider cannot be read")
        return check_token(token, found.keys, self.settings, found.issuer, self._now_ms() / 1000)

    def _age_ms(self) -> float:
        return (steady_s() - self._read_s) * 1000

    def _may_read_early(self) -> bool:
        return self._reading is not None or steady_s() - self._tried_s >= EARLY_S

    def _read(self) -> "asyncio.Task[None]":
        if self._reading is None:
            self._tried_s = steady_s()
            self._reading = asyncio.get_running_loop().create_task(self._read_now())
        return self._reading

    async def _read_now(self) -> None:
        try:
            self._took(await self._source.read())
        except NoKeys as error:
            if str(error) != self._failure:
                _log.error("the keys of the identity provider cannot be read", reason=str(error))
            self._failure = str(error)
        except Exception:
            _log.exception("the keys of the identity provider cannot be read")
            self._failure = f"reading {self._source.where} failed inside the broker"
        finally:
            self._reading = None

    def _took(self, found: Found) -> None:
        if self._found is None or self._failure:
            _log.info("keys of the identity provider read", source=self._source.where, keys=len(found.keys.keys))
        self._found, self._read_s, self._failure = found, steady_s(), ""

    async def _keep(self) -> None:
        while True:
            if self._is_due():
                await asyncio.shield(self._read())
            await asyncio.sleep(LOOK_S if self._source.is_file else min(RETRY_S, self.settings.refresh_ms / 1000))

    def _is_due(self) -> bool:
        if self._source.is_file:
            stamp, self._stamp = self._stamp, self._file_stamp()
            return stamp != self._stamp or bool(self._failure)
        return self._found is None or bool(self._failure) or self._age_ms() >= self.settings.refresh_ms

    def _file_stamp(self) -> tuple[int, int] | None:
        if not self._source.is_file:
            return None
        try:
            found = os.stat(self.settings.jwks_file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino
