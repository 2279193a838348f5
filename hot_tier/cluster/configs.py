"""Single changes to the settings of a topic, a broker or a group, as a pure decision: overrides and changes in,
overrides out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from hot_tier.errors import InvalidConfig, InvalidRequest
from hot_tier.log.config import TOPIC_SETTINGS, ConfigType, TopicConfig


class ConfigOperation(IntEnum):
    """The numbers are those of Kafka's IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None = None


def apply_changes(
    overrides: Mapping[str, str], changes: Sequence[ConfigChange], known: Mapping[str, str | None]
) -> dict[str, str]:
    """Returns the overrides after the changes. `known` has every setting: a list has its default, any other setting has
    None.

    This function does not check values.
    """
    result = dict(overrides)
    if len({change.name for change in changes}) != len(changes):
        raise InvalidRequest("a setting is changed twice in one request", hint="name each setting once")
    for change in changes:
        if change.operation is not ConfigOperation.DELETE and change.value is None:
            raise InvalidRequest(
                f"no value to {change.operation.name.lower()}",
                where=change.name,
                hint="use DELETE to go back to the default",
            )
        if change.name not in known:
            raise InvalidConfig(f"unknown setting {change.name!r}", where=change.name)
        if change.operation is ConfigOperation.DELETE:
            result.pop(change.name, None)
        elif change.operation is ConfigOperation.SET:
            result[change.name] = change.value or ""
        else:
            default = known[change.name]
            if default is None:
                raise InvalidConfig(
                    f"cannot {change.operation.name.lower()}: this setting is not a list",
                    where=change.name,
                    hint="use SET",
                )
            result[change.name] = _edit_list(result.get(change.name, default), change)
    return result


def topic_settings(defaults: TopicConfig) -> dict[str, str | None]:
    """Every topic setting, for `apply_changes`."""
    return {
        name: setting.metadata["kind"].render(getattr(defaults, setting.name))
        if setting.metadata["kind"].type is ConfigType.LIST
        else None
        for name, setting in TOPIC_SETTINGS.items()
    }


def _edit_list(current: str, change: ConfigChange) -> str:
    members = [member.strip() for member in current.split(",") if member.strip()]
    named = [member.strip() for member in (change.value or "").split(",") if member.strip()]
    if change.operation is ConfigOperation.APPEND:
        members += [member for member in named if member not in members]
    else:
        members = [member for member in members if member not in named]
    return ",".join(members)
