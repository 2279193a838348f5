"""DescribeUserScramCredentials and AlterUserScramCredentials: users and their passwords, as Kafka's tools keep them."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from gateway.kafka.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from hot_tier.cluster.credentials import LEAST_ITERATIONS, MOST_ITERATIONS, Credential, from_salted
from hot_tier.cluster.users import Credentials
from hot_tier.errors import TierlogError

NUMBERS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
BY_NAME: Final = {name: number for number, name in NUMBERS.items()}


async def describe(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    users = context.node.image.users
    named = Counter(user.name for user in request.users or ()) or Counter(users.keys())
    return DescribeUserScramCredentialsResponse(
        results=[_described(name, times, users) async for name, times in context.turn().through(named.items())]
    )


def _described(name: str, times: int, users: Mapping[str, Credentials]) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, "the user is named twice")
    found = users.get(name)
    if not found:
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, "there is no such user")
    infos = [CredentialInfo(BY_NAME[each.mechanism], each.iterations) for each in found.values()]
    return DescribeUserScramCredentialsResult(name, credential_infos=infos)


async def alter(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    named = Counter((each.name, each.mechanism) for each in request.deletions)
    named.update((each.name, each.mechanism) for each in request.upsertions)
    twice = {name for (name, _), times in named.items() if times > 1}
    results = []
    async for name in context.turn().through(list(dict.fromkeys(name for name, _ in named))):
        answer = ErrorCode.DUPLICATE_RESOURCE, "a credential of this user is named twice"
        if name not in twice:
            answer = await _alter_one(name, request, context)
        results.append(AlterUserScramCredentialsResult(name, *answer))
    return AlterUserScramCredentialsResponse(results=results)


async def _alter_one(
    name: str, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> tuple[ErrorCode, str]:
    gone = [each.mechanism for each in request.deletions if each.name == name]
    new = [each for each in request.upsertions if each.name == name]
    if any(number not in NUMBERS for number in (*gone, *(each.mechanism for each in new))):
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "a mechanism is unknown"
    for each in new:
        if not LEAST_ITERATIONS <= each.iterations <= MOST_ITERATIONS:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"iterations are {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
        if not each.salt or not each.salted_password:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "a salt and a salted password are needed"
    missing = False

    def decide(known: Credentials) -> Credentials:
        nonlocal missing
        missing = any(NUMBERS[number] not in known for number in gone)
        if missing:
            return known
        kept = {mechanism: each for mechanism, each in known.items() if BY_NAME[mechanism] not in gone}
        return {**kept, **{NUMBERS[each.mechanism]: _made(each) for each in new}}

    try:
        await context.node.users.change(name, decide)
    except TierlogError as error:
        return error_code(error), str(error)
    if missing:
        return ErrorCode.RESOURCE_NOT_FOUND, "the user has no such credential"
    return ErrorCode.NONE, ""


def _made(each: ScramCredentialUpsertion) -> Credential:
    return from_salted(NUMBERS[each.mechanism], bytes(each.salted_password), bytes(each.salt), each.iterations)


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler(0, 0, describe),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Handler(0, 0, alter),
}
