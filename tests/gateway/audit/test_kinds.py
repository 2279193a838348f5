"""Every API and every operation has its kind, and its names."""

from gateway.audit.kinds import COUNTED, HTTP, KAFKA
from gateway.http.app import OPERATIONS
from gateway.kafka.apis import Apis, load_handlers
from gateway.kafka.audited import NAMES, Named, codes_of
from gateway.kafka.protocol.api_keys import ApiKey, request_class, response_class
from gateway.kafka.protocol.schema import wire_fields

SILENT = {
    "API_VERSIONS",
    "describeApi",
    "getConsole",
    "getConsoleFile",
    "getConsoleFolder",
    "getHealth",
    "getHealthHead",
    "getMetrics",
    "getReadiness",
    "getReadinessHead",
    "getRoot",
}


def test_none_is_without_a_kind() -> None:
    assert set(KAFKA) == {api.name for api in ApiKey}
    assert {api.name for api in Apis(load_handlers()).handlers} <= set(KAFKA)
    assert set(HTTP) == {operation.name for operation in OPERATIONS} | {"describeApi"}
    assert {name for name, act in (KAFKA | HTTP).items() if act is None} == SILENT


def test_what_changes_something_over_http_is_not_only_counted() -> None:
    harmless = {"postMessage", "postMessages", "commitOffset", "postDeadLetter", "postFailure"}
    harmless |= {"beginTransaction", "postTransactionMessages", "addTransactionOffsets", "commitTransaction"}
    harmless |= {"runSql", "estimateSql", "cancelSql"}
    for operation in OPERATIONS:
        act = HTTP[operation.name]
        if operation.changes and operation.name not in harmless:
            assert act is not None and act.kind not in COUNTED, operation.name


def test_every_name_is_where_the_messages_have_it() -> None:
    assert set(NAMES) == set(ApiKey)
    for api, names in NAMES.items():
        for named in names:
            assert _exists(api, named), (api, named)


def test_every_answer_with_a_kind_has_error_codes() -> None:
    for api in ApiKey:
        codes = codes_of(response_class(api))
        assert codes.own or codes.inside, api


def _exists(api: ApiKey, named: Named) -> bool:
    cls = request_class(api) if named.asked else response_class(api)
    *through, last = named.path.split(".")
    for name in through:
        cls = dict(wire_fields(cls))[name].kind
        assert not isinstance(cls, str)
    return last in dict(wire_fields(cls))
