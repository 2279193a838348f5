"""SaslHandshake and SaslAuthenticate: a client logs in."""

from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from gateway.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

NO_LOGIN: Final = "nobody logs in at this listener"


async def shake_hands(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    login = context.login
    if login is None or context.api_version == 0:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    return SaslHandshakeResponse(login.begin(request.mechanism), list(login.mechanisms))


async def authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    login = context.login
    if login is None:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, NO_LOGIN)
    return await login.step(bytes(request.auth_bytes))


HANDLERS: Final[Mapping[int, Handler]] = {
    # librdkafka looks for version 0. Clients of today use 1; after 0 the login came in frames without a header.
    ApiKey.SASL_HANDSHAKE: Handler(0, 1, shake_hands),
    ApiKey.SASL_AUTHENTICATE: Handler(0, 2, authenticate),
}
