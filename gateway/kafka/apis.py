"""Which APIs are served in which versions, and the compiled path from a request's bytes to its handler.

A `Route` is one API version: its reader, its handler, its writer. Routes are made on first use, so that versions which
no client uses cost nothing at the start; `warm` makes those of the hot paths at once.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from gateway.kafka import handlers
from gateway.kafka.errors import UnsupportedVersion
from gateway.kafka.guards import guarded_by
from gateway.kafka.handler import Handler
from gateway.kafka.handlers import api_versions
from gateway.kafka.permissions import PERMISSIONS
from gateway.kafka.protocol.api_keys import ApiKey, request_class, response_class
from gateway.kafka.protocol.messages.api_versions import ApiVersionsResponse
from gateway.kafka.protocol.readers import QUICK_ELEMENTS, SlicedReadFunction, reader, sliced_reader
from gateway.kafka.protocol.schema import message_info, wire_fields
from gateway.kafka.protocol.writers import SlicedWriteFunction, sliced_writer, writer

HOT: Final = (ApiKey.PRODUCE, ApiKey.FETCH)
PATIENT: Final = (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""Requests that wait for other clients by design. A shutdown does not wait for them."""


class Route:
    __slots__ = (
        "api_key",
        "flexible_request",
        "flexible_response",
        "function",
        "guarded",
        "overlaps",
        "patient",
        "read",
        "requests",
        "response",
        "throttles",
        "version",
        "write",
    )

    def __init__(self, api_key: ApiKey, version: int, handler: Handler) -> None:
        request, response = request_class(api_key), response_class(api_key)
        self.api_key = api_key
        self.version = version
        self.function = handler.function
        self.guarded = guarded_by(PERMISSIONS, api_key, handler.function)
        """For senders that may not do everything."""
        self.read = reader(request, version, QUICK_ELEMENTS)
        """Gives up with `TooManyElements`; then use `read_in_slices`."""
        self.write = writer(response, version, quick=True)
        """Gives up with `TakesLong`; then use `write_in_slices`."""
        self.response = response
        self.flexible_request = version >= message_info(request).flexible_since
        self.flexible_response = version >= message_info(response).flexible_since and api_key is not ApiKey.API_VERSIONS
        self.throttles = any(name == "throttle_time_ms" for name, _ in wire_fields(response))
        self.overlaps = api_key is ApiKey.PRODUCE
        """Produce appends before it waits, so the next request need not wait for its answer."""
        self.patient = api_key in PATIENT
        self.requests = 0

    @property
    def read_in_slices(self) -> SlicedReadFunction:
        return sliced_reader(request_class(self.api_key), self.version)

    @property
    def write_in_slices(self) -> SlicedWriteFunction:
        return sliced_writer(self.response, self.version)


class Apis:
    """The dispatch table. ApiVersions tells clients these version ranges."""

    def __init__(self, modules: Iterable[Mapping[int, Handler]]) -> None:
        self.handlers: dict[ApiKey, Handler] = {}
        for module in modules:
            for api_key, handler in module.items():
                assert api_key not in self.handlers, f"two handlers for {ApiKey(api_key).name}"
                self.handlers[ApiKey(api_key)] = handler
        self.handlers[ApiKey.API_VERSIONS] = api_versions.handler(self.handlers)
        self._routes: dict[int, Route] = {}

    def route(self, api_key: int, version: int) -> Route:
        found = self._routes.get(api_key << 16 | version)
        return found if found is not None else self._make(api_key, version)

    def routes(self) -> Iterable[Route]:
        """Returns the routes in use, for the metrics."""
        return self._routes.values()

    def warm(self) -> None:
        for api_key in HOT:
            handler = self.handlers.get(api_key)
            if handler is not None:
                versions = message_info(request_class(api_key)).versions
                for version in range(max(handler.min_version, versions.start), handler.max_version + 1):
                    self.route(api_key, version)

    def unknown_version(self) -> ApiVersionsResponse:
        """Returns the answer for a client that uses an unknown version of ApiVersions."""
        return api_versions.unknown_version(self.handlers)

    def _make(self, api_key: int, version: int) -> Route:
        handler = self.handlers.get(api_key)  # type: ignore[call-overload]
        if handler is None:
            raise UnsupportedVersion(f"API {api_key} is not served")
        key = ApiKey(api_key)
        served = message_info(request_class(key)).versions
        if not (handler.min_version <= version <= handler.max_version and version in served):
            raise UnsupportedVersion(
                f"version {version} of {key.name} is not served",
                hint=f"use version {max(handler.min_version, served.start)} to {handler.max_version}",
            )
        made = self._routes[api_key << 16 | version] = Route(key, version, handler)
        return made


def load_handlers() -> list[Mapping[int, Handler]]:
    """Returns the handlers of all modules. Imported here, because a handler may import the dispatch table's types."""
    modules = [name for _, name, _ in iter_modules(handlers.__path__)]
    loaded = [import_module(f"{handlers.__name__}.{name}") for name in modules]
    return [module.HANDLERS for module in loaded if hasattr(module, "HANDLERS")]
