"""The broker's listeners, from its settings: which there are, bound, and how others are told to reach them.

The listeners `kafka` and `http` are always there. The settings `kafka.*` and `http.*` have their addresses. All else
that is said of a listener, and every other listener, is in a section `listener.<name>`. The two come first, so that
brokers call each other there unless they do not take peers.
"""

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from gateway.listener import Listener, ListenerSettings
from hot_tier.cluster.endpoints import (
    CLIENTS,
    HTTP,
    HTTP_PROTOCOLS,
    KAFKA,
    KAFKA_PROTOCOLS,
    PEERS,
    Endpoint,
    Endpoints,
)
from hot_tier.errors import SettingsError
from tierlog.exclusive import bind, reachable
from tierlog.settings import LISTENER, Settings, parse_address

USUAL: Final[Mapping[str, frozenset[str]]] = {KAFKA: KAFKA_PROTOCOLS, HTTP: HTTP_PROTOCOLS}


class Plan(NamedTuple):
    """A listener as the settings ask for it."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    """0: the port that it listens on."""
    takes: frozenset[str]
    where: str
    """The settings that its address stands in, and the flag that sets them."""
    flag: str


class Listeners(NamedTuple):
    kafka: list[Listener]
    http: list[Listener]
    endpoints: Endpoints


def bind_listeners(settings: Settings, parts: AsyncExitStack) -> Listeners:
    bound = Listeners([], [], endpoints := {})
    for plan in plan_listeners(settings):
        opened = bind(plan.host, plan.port, plan.where, plan.flag)
        parts.callback(opened.close)
        port = plan.advertised_port or opened.getsockname()[1]
        endpoints[plan.name] = Endpoint(plan.advertised_host, port, plan.protocol, plan.takes)
        listeners = bound.kafka if plan.protocol in KAFKA_PROTOCOLS else bound.http
        listeners.append(Listener(plan.name, opened, plan.takes))
    return bound


def plan_listeners(settings: Settings) -> list[Plan]:
    """SettingsError if they are not what a broker can serve with."""
    plans = [*_usual(settings), *_others(settings)]
    wanted = (CLIENTS,) if settings.cluster.alone else (CLIENTS, PEERS)
    for name, protocols in USUAL.items():
        for who in wanted:
            if not any(who in plan.takes for plan in plans if plan.protocol in protocols):
                raise SettingsError(
                    f"no {name} listener takes {who}",
                    where=f"{LISTENER}.{name}.takes",
                    hint=f"add {who} to `takes` of one of them",
                )
    return plans


def _usual(settings: Settings) -> Iterator[Plan]:
    kafka, http = settings.kafka, settings.http
    advertised = {
        KAFKA: (kafka.advertised_host or reachable(kafka.host), kafka.advertised_port),
        HTTP: (reachable(http.host, kafka.advertised_host), 0),
    }
    for section, asked in ((KAFKA, kafka), (HTTP, http)):
        said = settings.listener.get(section, ListenerSettings())
        for name in ("bind", "advertised"):
            if getattr(said, name):
                raise SettingsError(
                    f"{LISTENER}.{section}.{name} is not a setting of the listener {section!r}",
                    where=f"{LISTENER}.{section}.{name}",
                    hint=f"use {section}.host and {section}.port, or give the listener another name",
                )
        protocol = _protocol(section, said.protocol or next(iter(USUAL[section])), USUAL[section])
        where, flag = f"{section}.host, {section}.port", f"--{section}"
        yield Plan(section, protocol, asked.host, asked.port, *advertised[section], _takes(section, said), where, flag)


def _others(settings: Settings) -> Iterator[Plan]:
    for name, said in settings.listener.items():
        if name in USUAL:
            continue
        section = f"{LISTENER}.{name}"
        protocol = _protocol(name, said.protocol, KAFKA_PROTOCOLS | HTTP_PROTOCOLS)
        where = f"{section}.bind"
        host, port = parse_address(said.bind, where)
        shown = reachable(host, settings.kafka.advertised_host), 0
        if said.advertised:
            shown = parse_address(said.advertised, f"{section}.advertised")
        yield Plan(name, protocol, host, port, *shown, _takes(name, said), where, f"--{where}")


def _protocol(name: str, asked: str, served: frozenset[str]) -> str:
    if asked not in served:
        raise SettingsError(
            f"{LISTENER}.{name}.protocol cannot be {asked!r}",
            where=f"{LISTENER}.{name}.protocol",
            hint=f"it is {' or '.join(sorted(served))}; this version serves neither TLS nor SASL",
        )
    return asked


def _takes(name: str, said: ListenerSettings) -> frozenset[str]:
    if not said.takes:
        raise SettingsError(
            f"the listener {name!r} takes nobody",
            where=f"{LISTENER}.{name}.takes",
            hint="it is clients, peers or both",
        )
    return frozenset(said.takes)
