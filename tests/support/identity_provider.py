"""An identity provider for tests: keys, tokens, and a server with its description and its JWK set."""

import json
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Self

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from tests.support.certificates import Files

ISSUER = "https://issuer.example"
AUDIENCE = "tierlog"


def make_key(kid: str, algorithm: str = "RS256") -> Key:
    options: Any = {"kid": kid}
    if algorithm.startswith("ES"):
        curve = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[algorithm]
        return ECKey.generate_key(curve, options)
    if algorithm.startswith("Ed"):
        return OKPKey.generate_key("Ed25519", options)
    return RSAKey.generate_key(2048, options)


class Provider:
    """Keys by id, and tokens that are signed with them."""

    def __init__(self, clock_s: Callable[[], float] = time.time) -> None:
        self.clock_s = clock_s
        self.issuer = ISSUER
        self.keys: dict[str, Key] = {"one": make_key("one")}

    def jwks(self) -> bytes:
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys.values()]}).encode()

    def token(self, user: str = "ada", *, kid: str = "one", algorithm: str = "RS256", **claims: Any) -> str:
        """Returns a token that holds for five minutes. A claim that is None is left out."""
        now = int(self.clock_s())
        said = {"iss": self.issuer, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + 300, **claims}
        return jwt.encode(
            {"alg": algorithm, "kid": kid},
            {name: value for name, value in said.items() if value is not None},
            self.keys[kid],
            algorithms=[algorithm],
        )


class ProviderServer(Provider):
    """The same over HTTPS. `fails` makes it answer 500; `asked` counts requests for the keys."""

    def __init__(self, files: Files) -> None:
        super().__init__()
        self._files = files
        self._parts = AsyncExitStack()
        self.asked = 0
        self.fails = False
        self.said: bytes | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._describe)
        app.router.add_get("/keys", self._keys)
        runner = web.AppRunner(app)
        await runner.setup()
        self._parts.push_async_callback(runner.cleanup)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self.url = "https://{}:{}".format(*runner.addresses[0][:2])
        self.issuer = self.url
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    @property
    def discovery_url(self) -> str:
        return f"{self.url}/.well-known/openid-configuration"

    async def _describe(self, _: web.Request) -> web.Response:
        return web.json_response({"issuer": self.issuer, "jwks_uri": f"{self.url}/keys"})

    async def _keys(self, _: web.Request) -> web.Response:
        self.asked += 1
        if self.fails:
            return web.Response(status=500)
        return web.Response(body=self.jwks() if self.said is None else self.said)
