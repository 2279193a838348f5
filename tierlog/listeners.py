"""The broker's listeners, from its settings: which listeners there are, their sockets, and their addresses for others.

The listeners `kafka` and `http` always exist. Their addresses are the settings `kafka.*` and `http.*`. All other
settings of a listener, and all settings of every other listener, are in a section `listener.<name>`. The two come
first, so brokers call each other there, unless they do not take peers.

A broker that would serve less securely than its settings ask for does not start. Files that cannot be used, and a
certificate that is asked for where nobody can show one, are errors.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from ssl import SSLContext
from typing import Final, NamedTuple

from gateway.certificate_names import NameRules
from gateway.listener import Listener, ListenerSettings
from gateway.sasl import OAUTHBEARER, PLAIN, SERVED
from gateway.tls import Identity, TlsSettings
from hot_tier.cluster.credentials import MECHANISMS
from hot_tier.cluster.endpoints import (
    CLIENTS,
    HTTP,
    HTTP_PROTOCOLS,
    KAFKA,
    KAFKA_PROTOCOLS,
    PEERS,
    SASL,
    SECURE,
    Endpoint,
    Endpoints,
)
from hot_tier.errors import SettingsError
from tierlog.exclusive import bind, reachable
from tierlog.settings import LISTENER, Settings, parse_address

USUAL: Final[Mapping[str, frozenset[str]]] = {KAFKA: KAFKA_PROTOCOLS, HTTP: HTTP_PROTOCOLS}
USUALLY: Final = {KAFKA: "plaintext", HTTP: "http"}


class Plan(NamedTuple):
    """A listener as the settings describe it."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    """0 means the port on which it listens."""
    takes: frozenset[str]
    said: ListenerSettings
    where: str
    """The names of the settings that hold its address, and the flag that sets them."""
    flag: str


class WorkerPorts(NamedTuple):
    """Where one of several brokers of a service listens (`tierlog.workers`), in place of the port in the settings."""

    listens: tuple[int, ...]
    """The first is its own."""
    advertised: int


NOT_A_WORKER: Final[Mapping[str, WorkerPorts]] = {}


class Listeners(NamedTuple):
    kafka: list[Listener]
    http: list[Listener]
    endpoints: Endpoints
    identities: list[Identity]
    calls: SSLContext | None
    """For calls to other brokers."""


def bind_listeners(settings: Settings, parts: AsyncExitStack, workers: Mapping[str, WorkerPorts]) -> Listeners:
    """`workers` has the ports of every listener if this broker is one of several, else nothing."""
    tls = settings.tls
    names = NameRules(tls.principal_rules, "tls.principal_rules")
    identities = []
    calls = None
    if tls.certificate:
        identities.append(own := Identity(tls.certificate, tls.key, tls.ca, "tls.certificate, tls.key, tls.ca"))
        calls = own.call()
    endpoints: dict[str, Endpoint] = {}
    bound = Listeners([], [], endpoints, identities, calls)
    for plan in plan_listeners(settings):
        context = None
        if plan.protocol in SECURE:
            identities.append(identity := _identity(plan, tls))
            context = identity.serve(plan.said.client_certificate)
        mine = workers.get(plan.name, WorkerPorts((plan.port,), plan.advertised_port))
        listeners = bound.kafka if plan.protocol in KAFKA_PROTOCOLS else bound.http
        asks = names if plan.said.client_certificate != "none" else None
        peers = frozenset(tls.peers)
        mechanisms = _mechanisms(plan, settings)
        for number in mine.listens:
            opened = bind(plan.host, number, plan.where, plan.flag, shared=bool(workers))
            parts.callback(opened.close)
            endpoints.setdefault(
                plan.name,
                Endpoint(plan.advertised_host, mine.advertised or opened.getsockname()[1], plan.protocol, plan.takes),
            )
            listeners.append(Listener(plan.name, opened, plan.takes, context, asks, peers, mechanisms))
    return bound


def _identity(plan: Plan, tls: TlsSettings) -> Identity:
    said, section = plan.said, f"{LISTENER}.{plan.name}"
    if said.certificate:
        return Identity(
            said.certificate, said.key, said.ca or tls.ca, f"{section}.certificate, {section}.key, {section}.ca"
        )
    return Identity(tls.certificate, tls.key, said.ca or tls.ca, f"tls.certificate, tls.key, {section}.ca or tls.ca")


def plan_listeners(settings: Settings) -> list[Plan]:
    """Returns the listeners. Raises SettingsError if a broker cannot serve with them, or less securely than asked."""
    plans = [*_usual(settings), *_others(settings)]
    for plan in plans:
        _check_tls(plan, settings.tls)
        _check_login(plan, settings)
    _check_peers(plans, settings)
    _check_audit(settings)
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


def _check_audit(settings: Settings) -> None:
    if settings.audit.enabled and not settings.cluster.alone and not settings.tls.peers:
        raise SettingsError(
            "the audit of a cluster needs tls.peers: else anybody could write to it as a broker",
            where="audit.enabled",
            hint="name the brokers in tls.peers, as docs/SECURING.md shows",
        )


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
        protocol = _protocol(section, said.protocol or USUALLY[section], USUAL[section])
        where, flag = f"{section}.host, {section}.port", f"--{section}"
        takes = _takes(section, said)
        yield Plan(section, protocol, asked.host, asked.port, *advertised[section], takes, said, where, flag)


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
        yield Plan(name, protocol, host, port, *shown, _takes(name, said), said, where, f"--{where}")


def _check_tls(plan: Plan, tls: TlsSettings) -> None:
    said, section = plan.said, f"{LISTENER}.{plan.name}"
    if bool(said.certificate) != bool(said.key):
        raise SettingsError(f"{section}.certificate and {section}.key go together", hint="give both or none")
    if plan.protocol not in SECURE:
        for name in ("certificate", "ca"):
            if getattr(said, name):
                raise _unused(f"{section}.{name}", plan)
        if said.client_certificate != "none":
            raise _unused(f"{section}.client_certificate", plan)
        return
    if not said.certificate and not tls.certificate:
        raise SettingsError(
            f"the listener {plan.name!r} speaks {plan.protocol} and has no certificate",
            where=f"{section}.certificate",
            hint="name one for this listener, or one for all with tls.certificate and tls.key",
        )
    if said.client_certificate != "none" and not said.ca and not tls.ca:
        raise SettingsError(
            f"the listener {plan.name!r} asks for certificates and cannot check them",
            where=f"{section}.client_certificate",
            hint=f"name the file of the authorities with {section}.ca or tls.ca",
        )


def _mechanisms(plan: Plan, settings: Settings) -> tuple[str, ...]:
    """Returns how somebody logs in at the listener; nothing where nobody does."""
    if plan.protocol in HTTP_PROTOCOLS:
        return (PLAIN,) if plan.said.login == "required" else ()
    if plan.protocol not in SASL:
        return ()
    if plan.said.mechanisms or plan.protocol not in SECURE:
        return plan.said.mechanisms or tuple(MECHANISMS)
    return (*SERVED, OAUTHBEARER) if settings.oauth.enabled else SERVED


def logs_in(plan: Plan, settings: Settings) -> bool:
    """Returns whether everybody at the listener logs in."""
    return bool(_mechanisms(plan, settings))


def _check_login(plan: Plan, settings: Settings) -> None:
    said, section = plan.said, f"{LISTENER}.{plan.name}"
    if said.mechanisms and plan.protocol not in SASL:
        raise SettingsError(
            f"{section}.mechanisms has no effect: the listener speaks {plan.protocol}",
            where=f"{section}.mechanisms",
            hint=f"set {section}.protocol to sasl_tls or sasl_plaintext",
        )
    if OAUTHBEARER in said.mechanisms and not settings.oauth.enabled:
        raise SettingsError(
            f"{section}.mechanisms has OAUTHBEARER, and no setting says whose tokens are right",
            where=f"{section}.mechanisms",
            hint="set oauth.discovery_url, oauth.jwks_url or oauth.jwks_file",
        )
    if said.login != "none" and plan.protocol != "https":
        raise SettingsError(
            f"{section}.login would let passwords pass unencrypted: the listener speaks {plan.protocol}",
            where=f"{section}.login",
            hint=f"set {section}.protocol to https",
        )
    if PEERS in plan.takes and _mechanisms(plan, settings):
        raise SettingsError(
            f"the listener {plan.name!r} asks for a login and takes peers, which do not log in",
            where=f"{section}.takes",
            hint="set it to clients, and give the brokers a listener of their own with TLS",
        )


def _unused(setting: str, plan: Plan) -> SettingsError:
    return SettingsError(
        f"{setting} has no effect: the listener {plan.name!r} speaks {plan.protocol}",
        where=setting,
        hint=f"set {LISTENER}.{plan.name}.protocol to tls or https",
    )


def _check_peers(plans: Iterable[Plan], settings: Settings) -> None:
    if settings.cluster.alone:
        return
    if settings.authorization.enabled and not settings.tls.peers:
        raise SettingsError(
            "authorization.enabled is set, and nothing shows which senders are the other brokers",
            where="tls.peers",
            hint="give the brokers certificates, and name them in tls.peers",
        )
    if not settings.tls.peers:
        return
    if not settings.tls.certificate:
        raise SettingsError(
            "tls.peers names the brokers, and this broker has no certificate to show the others",
            where="tls.certificate",
            hint="name it, with tls.key",
        )
    for plan in plans:
        if PEERS in plan.takes and plan.said.client_certificate == "none":
            raise SettingsError(
                f"tls.peers names the brokers, and the listener {plan.name!r} takes peers without a certificate",
                where=f"{LISTENER}.{plan.name}.client_certificate",
                hint="set it to wanted or required, or leave peers out of its `takes`",
            )


def _protocol(name: str, asked: str, served: frozenset[str]) -> str:
    if asked not in served:
        raise SettingsError(
            f"{LISTENER}.{name}.protocol cannot be {asked!r}",
            where=f"{LISTENER}.{name}.protocol",
            hint=f"it is {' or '.join(sorted(served))}",
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
