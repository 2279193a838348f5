"""DescribeAcls, CreateAcls, DeleteAcls: there are no access rules, and whoever asks is told so, as Kafka without an
authorizer does."""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from gateway.kafka.errors import SecurityDisabled
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey


def refuse(request: Any, context: RequestContext) -> NoReturn:
    raise SecurityDisabled("access rules are not kept: every client may do everything")


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.DESCRIBE_ACLS: Handler(1, 3, refuse),
    ApiKey.CREATE_ACLS: Handler(1, 3, refuse),
    ApiKey.DELETE_ACLS: Handler(1, 3, refuse),
}
