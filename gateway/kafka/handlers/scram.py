"""DescribeUserScramCredentials: no passwords are kept, so that nobody is found."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    named = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=[
            DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, "no passwords are kept")
            if times == 1
            else DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, "the user is named twice")
            async for name, times in context.turn().through(named.items())
        ]
    )


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler(0, 0, handle)}
