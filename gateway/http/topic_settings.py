"""A topic's settings as a JSON object: which values each allows, made from `hot_tier.log.config`.

Kafka stores settings as text, and its users write them as text; JSON has numbers and booleans. Both are accepted, and
text is stored.
"""

from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema

from hot_tier.log.config import MAX_INT, MAX_LONG, TOPIC_SETTINGS, ConfigType, Kind


def whole(value: Any) -> Any:
    """Returns 5 for 5.0: JSON Schema counts it as an integer, and some clients write every number that way."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _setting_text(name: str, value: Any) -> str | None:
    """Returns the setting as the text that the topic stores; None resets it to its default."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise ValueError(f"there is no topic setting {name!r}; GET /api/v1/topics/{{topic}} lists them")
    if value is None:
        return None
    kind: Kind = setting.metadata["kind"]
    text = value if isinstance(value, str) else str(whole(value)).lower()
    try:
        taken = str if kind.type is ConfigType.STRING else str | int | float
        if not isinstance(value, taken) or text != text.strip():
            raise TypeError
        kind.parse(text)
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{name} must be {kind.allowed}") from None
    return text


NUMBER_AS_TEXT: Final = "^[2-9][0-9]{3,8}$"
"""Kafka's tools send numbers as text. A pattern cannot express a range; every wide range contains this pattern's."""


def _setting_schema(kind: Kind) -> dict[str, Any]:
    match kind.type:
        case ConfigType.BOOLEAN:
            return {"anyOf": [{"type": "boolean"}, {"enum": ["true", "false"]}]}
        case ConfigType.INT | ConfigType.LONG:
            number = {"type": "integer", "minimum": kind.low, "maximum": kind.high}
            text = [{"type": "string", "pattern": NUMBER_AS_TEXT}] if kind.high in (MAX_INT, MAX_LONG) else []
            return {"anyOf": [number, *text]}
        case ConfigType.DOUBLE:
            return {"type": "number", "minimum": kind.low, "maximum": kind.high}
        case ConfigType.LIST:
            return {"type": "string", "pattern": f"^(({kind.member})(,({kind.member}))*)?$"}
        case _ if kind.choices:
            return {"enum": list(kind.choices)}
        case _:
            return {"type": "string", "pattern": f"^({kind.member})$"}


def _settings_schema(*, nullable: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, setting in TOPIC_SETTINGS.items():
        kind: Kind = setting.metadata["kind"]
        schema = _setting_schema(kind)
        if nullable:
            schema = {"anyOf": [schema, {"type": "null"}]}
        properties[name] = {"description": f"{setting.metadata['doc']} It is {kind.allowed}.", **schema}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _settings(value: Any) -> dict[str, str | None]:
    if not isinstance(value, dict):
        raise ValueError("must be an object of settings")
    return {str(name): _setting_text(str(name), each) for name, each in value.items()}


def _no_nulls(value: dict[str, str | None]) -> dict[str, str | None]:
    for name, each in value.items():
        if each is None:
            raise ValueError(f"{name} is null: leave it out to get the default")
    return value


NewSettings = Annotated[
    dict[str, str],
    PlainValidator(lambda value: _no_nulls(_settings(value))),
    WithJsonSchema(_settings_schema(nullable=False)),
]
ChangedSettings = Annotated[
    dict[str, str | None], PlainValidator(_settings), WithJsonSchema(_settings_schema(nullable=True))
]
