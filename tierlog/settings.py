"""The settings of one broker: which sections there are, where values come from, and the errors for bad values.

Each section is a frozen dataclass in the package that uses it; this module puts them together. A key is `section.name`.
Its value comes from the first of these that has one: a flag of `tierlog serve`, the environment variable
`TIERLOG_SECTION__NAME`, the TOML file, the default. `topic.*` are the defaults of topics, with Kafka's names. Each
listener besides the two usual ones has its own section, `listener.<name>`.

Invariants:
- Settings are read once, before anything starts, and passed on as values. Nothing else reads the environment.
- Every mistake is a `SettingsError` that names the source (file and key, variable or flag), the value, the allowed
  values and, for an unknown key, the nearest right one.

Values are converted here and not by a settings library: such libraries merge the sources first, and then nobody can say
which source had the bad value.
"""

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, NewType, Union, get_args, get_origin, get_type_hints

from cold_tier.cache import ColdReadSettings
from cold_tier.objects.open import StoreSettings
from gateway.audit.settings import AuditSettings
from gateway.authorizer import AuthorizationSettings
from gateway.coordinators.settings import GroupSettings, TransactionSettings
from gateway.http.settings import HttpSettings
from gateway.kafka_settings import KafkaSettings
from gateway.listener import ListenerSettings
from gateway.logins import LoginSettings
from gateway.sql.settings import SqlSettings
from gateway.tls import TlsSettings
from gateway.tokens.settings import OauthSettings
from hot_tier.cluster.etcd_settings import EtcdSettings
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.errors import InvalidConfig, SettingsError
from hot_tier.log.config import TOPIC_SETTINGS, TopicConfig, parse_topic_config
from hot_tier.log.settings import LogSettings
from hot_tier.replication.settings import ReplicationSettings
from hot_tier.secrets import is_reference, resolve_secret
from offloader.prices import CostSettings
from offloader.settings import OffloadSettings

ENVIRONMENT_PREFIX: Final = "TIERLOG_"
LISTENER: Final = "listener"
LISTENER_NAME: Final = re.compile(r"[a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    log_level: Literal["debug", "info", "warning", "error"] = field(
        default="info", metadata={"doc": "The least serious level of events that are written to standard error."}
    )
    log_format: Literal["auto", "console", "logfmt", "json"] = field(
        default="auto",
        metadata={"doc": "The form of events, one line each; auto: readable on a terminal, else logfmt."},
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of `tierlog.broker.Broker`."""

    broker: BrokerSettings = field(default_factory=BrokerSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    etcd: EtcdSettings = field(default_factory=EtcdSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    log: LogSettings = field(default_factory=LogSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    login: LoginSettings = field(default_factory=LoginSettings)
    oauth: OauthSettings = field(default_factory=OauthSettings)
    authorization: AuthorizationSettings = field(default_factory=AuthorizationSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    archive: OffloadSettings = field(default_factory=OffloadSettings)
    cache: ColdReadSettings = field(default_factory=ColdReadSettings)
    sql: SqlSettings = field(default_factory=SqlSettings)
    cost: CostSettings = field(default_factory=CostSettings)
    topic: TopicConfig = field(default_factory=TopicConfig)
    listener: Mapping[str, ListenerSettings] = field(default_factory=dict)
    """By name: listeners besides those of `kafka` and `http`, and further settings of these two."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: where its value goes, and which values it may have."""

    section: str
    name: str
    """The field of the section's dataclass."""
    key: str
    """The key as users write it: `kafka.port`, `topic.retention.ms`."""
    type: Any
    default: Any
    doc: str
    low: int | None
    secret: bool = False
    """Its value is never shown. It may be a reference, `file:/path` or `env:NAME`."""

    @property
    def variable(self) -> str:
        if self.section == LISTENER:
            return ENVIRONMENT_PREFIX + self.key.replace(".", "__").upper()
        return f"{ENVIRONMENT_PREFIX}{self.section}__{self.name}".upper()

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    @property
    def allowed(self) -> str:
        if self.section == "topic":
            return str(TOPIC_SETTINGS[self.key.removeprefix("topic.")].metadata["kind"].allowed)
        if self.secret:
            return "`file:/path`, `env:NAME` or the secret itself"
        return _allowed(self.type) + (f", at least {self.low}" if self.low is not None else "")


class Given(NamedTuple):
    """A value as the user gave it. Errors use `source` to say where it was given."""

    key: str
    value: Any
    source: str
    file: str = ""
    """The settings file it was in, if it was in one."""


def load_settings(
    *,
    config: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[Given] = (),
    beneath: Sequence[Given] = (),
) -> Settings:
    """`beneath` takes the place of defaults: whatever the user gave wins over it."""
    given: dict[str, tuple[Setting, Given]] = {}
    for each in (*beneath, *_from_file(config), *_from_environment(environment or {}), *flags):
        setting = find_setting(each.key, each.source)
        given[setting.key] = (setting, each)
    sections = {section: _build(section, list(given.values())) for section in section_types()}
    return Settings(**sections, listener=_build_listeners(list(given.values())))


@cache
def all_settings() -> Mapping[str, Setting]:
    """Returns every setting by its normalized key, in the order of the reference page."""
    found: dict[str, Setting] = {}
    for section, cls in {**section_types(), LISTENER: ListenerSettings}.items():
        hints = get_type_hints(cls)
        for each in fields(cls):
            shown = each.metadata.get("name", each.name) if section == "topic" else each.name
            if section == LISTENER:
                shown = f"<name>.{shown}"
            setting = Setting(
                section=section,
                name=each.name,
                key=f"{section}.{shown}",
                type=hints[each.name],
                default=each.default,
                doc=each.metadata["doc"],
                low=each.metadata.get("min", 0 if hints[each.name] is int else None),
                secret=each.metadata.get("secret", False),
            )
            found[_normalized(setting.key)] = setting
    return found


@cache
def section_types() -> Mapping[str, type[Any]]:
    """Returns the sections that exist once each. Listeners are not among them: each has its own section."""
    return {name: hint for name, hint in get_type_hints(Settings).items() if name != LISTENER}


def find_setting(key: str, source: str) -> Setting:
    setting = all_settings().get(_normalized(key)) or _listener_setting(key, source)
    if setting is None:
        near = difflib.get_close_matches(_normalized(key), all_settings(), n=1, cutoff=0.5)
        hint = f"did you mean {all_settings()[near[0]].key}? " if near else ""
        raise SettingsError(f"there is no setting {key!r}", where=source, hint=f"{hint}docs/SETTINGS.md lists them all")
    return setting


def _listener_setting(key: str, source: str) -> Setting | None:
    """`listener.internal.bind` is the setting `listener.<name>.bind` of the listener `internal`."""
    section, _, rest = key.lower().partition(".")
    name, _, field_name = rest.rpartition(".")
    setting = all_settings().get(_normalized(f"{LISTENER}.<name>.{field_name}"))
    if section != LISTENER or setting is None:
        return None
    if not LISTENER_NAME.fullmatch(name):
        raise SettingsError(
            f"a listener cannot have the name {name!r}",
            where=source,
            hint="write `listener.NAME.SETTING`; a name has letters, digits, - and _",
        )
    return replace(setting, key=f"{LISTENER}.{name}.{setting.name}")


def _normalized(key: str) -> str:
    """Returns one form for `kafka.max-request-bytes`, `topic.retention.ms` and `topic.retention_ms`."""
    section, _, name = key.lower().partition(".")
    return f"{section}.{name.replace('-', '_').replace('.', '_')}"


# Sources


def _from_file(path: str | None) -> Iterator[Given]:
    if path is None:
        return
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", where=path, hint="check --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"is not TOML: {error}", where=path) from None
    for key, value in _flat(table, ()):
        yield Given(key, value, f"{path}: {key}", path)


def _flat(table: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """TOML reads `retention.ms = 1` in `[topic]` as nested tables. A key is the path through them."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, (*above, name))
        else:
            yield ".".join((*above, name)), value


def _from_environment(environment: Mapping[str, str]) -> Iterator[Given]:
    for variable, value in sorted(environment.items()):
        # Without the double underscore it is not one of ours: Kubernetes sets TIERLOG_PORT for everything beside a
        # service called tierlog.
        if variable.startswith(ENVIRONMENT_PREFIX) and "__" in variable:
            section, _, name = variable.removeprefix(ENVIRONMENT_PREFIX).partition("__")
            yield Given(f"{section}.{name.replace('__', '.')}".lower(), value, variable)


# Values


def _build(section: str, given: Iterable[tuple[Setting, Given]]) -> Any:
    mine = [(setting, each) for setting, each in given if setting.section == section]
    if section == "topic":
        return _build_topic(mine)
    values = {setting.name: _convert(setting, each) for setting, each in mine}
    try:
        return section_types()[section](**values)
    except SettingsError as error:
        sources = [each.source for setting, each in mine if setting.key in error.what]
        raise SettingsError(error.what, where=", ".join(sources) or error.where, hint=error.hint) from None


def _build_listeners(given: Iterable[tuple[Setting, Given]]) -> Mapping[str, ListenerSettings]:
    values: dict[str, dict[str, Any]] = {}
    for setting, each in given:
        if setting.section == LISTENER:
            values.setdefault(setting.key.split(".")[1], {})[setting.name] = _convert(setting, each)
    return {name: ListenerSettings(**mine) for name, mine in values.items()}


def _build_topic(given: Sequence[tuple[Setting, Given]]) -> TopicConfig:
    texts = {
        setting.key.removeprefix("topic."): (
            str(each.value).lower() if isinstance(each.value, bool) else str(each.value),
            each.source,
        )
        for setting, each in given
    }
    try:
        return parse_topic_config({name: text for name, (text, _) in texts.items()}, TopicConfig())
    except InvalidConfig as error:
        source = texts[error.where][1] if error.where in texts else error.where
        raise SettingsError(error.what, where=source, hint=error.hint) from None


def _convert(setting: Setting, given: Given) -> Any:
    if setting.secret:
        return _secret(setting, given)
    try:
        value = _read(setting.type, given.value)
    except (ValueError, TypeError):
        value = None
        bad = True
    else:
        bad = setting.low is not None and value is not None and value < setting.low
    if bad:
        shown = "what was given" if setting.secret else repr(given.value)
        raise SettingsError(
            f"{setting.key} cannot be {shown}",
            where=given.source,
            hint=f"it is {setting.allowed}",
        )
    return value


def _secret(setting: Setting, given: Given) -> str:
    """Returns the secret. Refuses one in a flag, which others can see, or in a file that others can read."""
    value = given.value
    if not isinstance(value, str):
        raise SettingsError(f"{setting.key} is no text", where=given.source, hint=f"it is {setting.allowed}")
    if value and not is_reference(value):
        if given.source.startswith("--"):
            raise SettingsError(
                f"{setting.key} is a secret, and others on this machine see the flags of a process",
                where=given.source,
                hint=f"give file:/path or env:NAME, or set {setting.variable}",
            )
        if given.file and os.stat(given.file).st_mode & stat.S_IROTH:
            raise SettingsError(
                f"{setting.key} is a secret, and everybody on this machine can read the file",
                where=given.source,
                hint=f"chmod o= {given.file}, or give file:/path or env:NAME there",
            )
    return resolve_secret(value, f"{given.source} ({setting.key})")


_TRUTH: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def _read(kind: Any, value: Any) -> Any:
    """Converts `value`, from TOML or from text, to `kind`. Raises ValueError or TypeError if it does not fit."""
    origin = get_origin(kind)
    if isinstance(kind, NewType):
        return _read(kind.__supertype__, value)
    if origin in (Union, UnionType):
        (inner,) = (each for each in get_args(kind) if each is not NoneType)
        return None if value == "" else _read(inner, value)
    if origin is Literal:
        if value not in get_args(kind):
            raise ValueError(value)
        return value
    if origin is tuple:
        parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        return tuple(_read(get_args(kind)[0], part) for part in parts)
    if kind is bool and isinstance(value, str):
        if value.lower() not in _TRUTH:
            raise ValueError(value)
        return _TRUTH[value.lower()]
    if kind in (int, float) and isinstance(value, str | int) and not isinstance(value, bool):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _allowed(kind: Any) -> str:
    origin = get_origin(kind)
    if isinstance(kind, NewType):
        return _allowed(kind.__supertype__)
    if origin in (Union, UnionType):
        (inner,) = (each for each in get_args(kind) if each is not NoneType)
        return f"{_allowed(inner)}, or empty"
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    if origin is tuple:
        return f"a list, each {_allowed(get_args(kind)[0])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]


# Flags that have a short form


def split_address(text: str, flag: str, section: str) -> tuple[Given, Given]:
    """Splits `HOST:PORT` of `--kafka` and `--http` into the two settings; `[::1]:9092` for IPv6."""
    host, port = parse_address(text, flag)
    return Given(f"{section}.host", host, flag), Given(f"{section}.port", str(port), flag)


def parse_address(text: str, where: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(
            f"{where} cannot be {text!r}",
            where=where,
            hint="it is HOST:PORT, such as 127.0.0.1:9092; port 0 is any free one",
        )
    return host.strip("[]"), int(port)
