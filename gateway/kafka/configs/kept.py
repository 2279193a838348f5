"""Settings of brokers and groups that Kafka's tools can change while a broker runs.

A broker reads its own settings once, from its settings file; an attempt to change them here is refused. Two kinds can
be changed: the limits on replication traffic (`throttles`), and settings that are only stored
(`hot_tier.cluster.kept`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gateway.kafka.configs.throttles import BROKER_RATES, rate_of, throttle
from gateway.node import Node
from hot_tier.cluster.configs import ConfigChange, ConfigOperation, apply_changes
from hot_tier.cluster.kept import BROKER, GROUP, KEPT
from hot_tier.errors import InvalidRequest, UnknownBroker
from hot_tier.ids import NodeId

ALL_BROKERS: Final = ""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


async def alter_broker(node: Node, name: str, changes: Sequence[ConfigChange], validate_only: bool) -> None:
    _check_broker(node, name, {change.name for change in changes})
    rates = {change.name: rate_of(change) for change in changes if change.name in BROKER_RATES}
    kept = [change for change in changes if change.name not in BROKER_RATES]
    await _alter_kept(node, BROKER, name, kept, validate_only)
    if not validate_only:
        await throttle(node, name, rates)


async def replace_broker(node: Node, name: str, config: Mapping[str, str], validate_only: bool) -> None:
    _check_broker(node, name, config)
    rates: dict[str, int | None] = dict.fromkeys(BROKER_RATES if name != ALL_BROKERS else ())
    kept: dict[str, str] = {}
    for setting, text in config.items():
        if setting in BROKER_RATES:
            rates[setting] = rate_of(ConfigChange(setting, ConfigOperation.SET, text))
        else:
            kept[setting] = text
    await node.kept.change(BROKER, name, lambda _: kept, validate_only)
    if not validate_only:
        await throttle(node, name, rates)


async def alter_group(node: Node, name: str, changes: Sequence[ConfigChange], validate_only: bool) -> None:
    check_group(name)
    await _alter_kept(node, GROUP, name, changes, validate_only)


async def replace_group(node: Node, name: str, config: Mapping[str, str], validate_only: bool) -> None:
    check_group(name)
    await node.kept.change(GROUP, name, lambda _: config, validate_only)


def check_group(name: str) -> None:
    if not name:
        raise InvalidRequest("the group has no name", hint="name the group whose settings you want")


async def _alter_kept(node: Node, kind: str, name: str, changes: Sequence[ConfigChange], validate_only: bool) -> None:
    known = dict.fromkeys(KEPT[kind])
    await node.kept.change(kind, name, lambda held: apply_changes(held, changes, known), validate_only)


def _check_broker(node: Node, name: str, settings: Collection[str]) -> None:
    may_change = KEPT[BROKER].keys() if name == ALL_BROKERS else KEPT[BROKER].keys() | BROKER_RATES
    fixed = sorted(set(settings) - may_change)
    if fixed:
        raise InvalidRequest(
            f"a running broker cannot change this setting: {fixed[0]}",
            hint="change the broker's settings file and restart the broker",
        )
    if name == ALL_BROKERS:
        return
    if not _NUMBER.fullmatch(name):
        raise InvalidRequest(f"{name!r} is not a broker id")
    if node.image.broker(NodeId(int(name))) is None and node.image.node(NodeId(int(name))) is None:
        raise UnknownBroker(f"there never was a broker {name} in this cluster")
