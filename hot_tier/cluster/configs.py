"""Single changes to a topic's overrides, as a pure decision: overrides and changes in, overrides out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from hot_tier.errors import InvalidConfig
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
    overrides: Mapping[str, str], changes: Sequence[ConfigChange], defaults: TopicConfig
) -> dict[str, str]:
    """Values are not judged here; `parse_topic_config` does that with the result."""
    result = dict(overrides)
    if len({change.name for change in changes}) != len(changes):
        raise InvalidConfig("a setting is changed twice in one request", hint="name each setting once")
    for change in changes:
        if change.name not in TOPIC_SETTINGS:
            raise InvalidConfig(f"unknown topic setting {change.name!r}", where=change.name)
        if change.operation is ConfigOperation.DELETE:
            result.pop(change.name, None)
        elif change.value is None:
            raise InvalidConfig(
                f"no value to {change.operation.name.lower()}",
                where=change.name,
                hint="use DELETE to go back to the default",
            )
        elif change.operation is ConfigOperation.SET:
            result[change.name] = change.value
        else:
            result[change.name] = _edit_list(result.get(change.name), change, defaults)
    return result


def _edit_list(current: str | None, change: ConfigChange, defaults: TopicConfig) -> str:
    """Append or subtract; a setting that has no override yet starts from its default."""
    setting = TOPIC_SETTINGS[change.name]
    kind = setting.metadata["kind"]
    if kind.type is not ConfigType.LIST:
        raise InvalidConfig(
            f"cannot {change.operation.name.lower()}: this setting is not a list", where=change.name, hint="use SET"
        )
    text = kind.render(getattr(defaults, setting.name)) if current is None else current
    members = [member.strip() for member in text.split(",") if member.strip()]
    named = [member.strip() for member in (change.value or "").split(",") if member.strip()]
    if change.operation is ConfigOperation.APPEND:
        members += [member for member in named if member not in members]
    else:
        members = [member for member in members if member not in named]
    return ",".join(members)
