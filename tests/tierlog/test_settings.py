"""Where settings come from, which source wins, and what is said of each mistake."""

from pathlib import Path

import pytest

from hot_tier.errors import SettingsError
from tierlog.settings import Given, Settings, all_settings, load_settings, split_address
from tierlog.settings_page import SECTIONS, settings_page

PAGE = Path(__file__).parents[2] / "docs" / "SETTINGS.md"


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tierlog.toml"
    path.write_text(text)
    return str(path)


def flag(key: str, value: object) -> Given:
    return Given(key, value, f"--{key}")


def test_nothing_given_is_the_defaults() -> None:
    assert load_settings() == Settings()


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = file(tmp_path, "[kafka]\nport = 1\nhost = 'file'\nmax_connections = 3\n")
    environment = {"TIERLOG_KAFKA__PORT": "2", "TIERLOG_KAFKA__HOST": "variable"}
    settings = load_settings(config=config, environment=environment, flags=[flag("kafka.port", "9")])
    assert (settings.kafka.port, settings.kafka.host, settings.kafka.max_connections) == (9, "variable", 3)


def test_every_key_can_be_given_in_each_of_the_three_ways(tmp_path: Path) -> None:
    for setting in all_settings().values():
        if setting.section == "listener":
            continue  # It has a name between section and key; see test_listeners.
        value = setting.default
        items = sorted(value) if isinstance(value, frozenset) else value
        text = ",".join(items) if isinstance(items, list | tuple) else str(value)
        section, name = setting.key.split(".", 1)
        quoted = value if isinstance(value, int | float) and not isinstance(value, bool) else f"'{text}'"
        quoted = text.lower() if isinstance(value, bool) else quoted
        config = file(tmp_path, f'[{section}]\n"{name}" = {quoted}\n')
        assert load_settings(config=config) == Settings(), setting.key
        assert load_settings(environment={setting.variable: text}) == Settings(), setting.key
        if setting.secret:
            continue  # A flag can be seen by everybody on the machine; see test_secrets.
        assert load_settings(flags=[flag(setting.key.replace("_", "-"), text)]) == Settings(), setting.key


def test_topic_defaults_use_kafkas_names(tmp_path: Path) -> None:
    config = file(tmp_path, "[topic]\nretention.ms = 5000\ncleanup.policy = 'compact,delete'\n")
    topic = load_settings(config=config, environment={"TIERLOG_TOPIC__SEGMENT_BYTES": "4096"}).topic
    assert (topic.retention_ms, topic.segment_bytes) == (5000, 4096)
    assert set(topic.cleanup_policy) == {"compact", "delete"}


def test_a_variable_without_the_double_underscore_is_somebody_elses() -> None:
    assert load_settings(environment={"TIERLOG_PORT": "tcp://10.0.0.1:80", "TIERLOG_SERVER": "x"}) == Settings()


@pytest.mark.parametrize(
    ("environment", "flags", "parts"),
    [
        ({"TIERLOG_KAFKA__PROT": "1"}, [], ["TIERLOG_KAFKA__PROT", "'kafka.prot'", "did you mean kafka.port?"]),
        ({"TIERLOG_KAFKA__PORT": "many"}, [], ["TIERLOG_KAFKA__PORT", "'many'", "a whole number"]),
        ({"TIERLOG_KAFKA__PORT": "-1"}, [], ["TIERLOG_KAFKA__PORT", "'-1'", "at least 0"]),
        ({"TIERLOG_KAFKA__AUTO_CREATE_TOPICS": "maybe"}, [], ["'maybe'", "true or false"]),
        ({"TIERLOG_BROKER__LOG_LEVEL": "loud"}, [], ["'loud'", "one of debug, info, warning, error"]),
        ({}, [flag("topic.retention.ms", "soon")], ["--topic.retention.ms", "'soon'", "a whole number"]),
        ({}, [flag("topic.retention", "1")], ["--topic.retention", "did you mean topic.retention.ms?"]),
        ({"TIERLOG_GROUPS__MAX_SIZE": "0"}, [], ["TIERLOG_GROUPS__MAX_SIZE", "groups.max_size", "at least 1"]),
        ({}, [flag("store.bucket", "ftp://x")], ["--store.bucket", "'ftp://x'", "s3://bucket/prefix"]),
        ({}, [flag("store.bucket", "file://relative")], ["'file://relative'", "file:///absolute/path"]),
        ({}, [flag("store.s3_endpoint", "localhost:1")], ["'localhost:1'", "http://HOST:PORT"]),
        ({}, [flag("nonsense", "1")], ["'nonsense'", "docs/SETTINGS.md"]),
    ],
)
def test_a_mistake_names_its_place_the_value_and_what_it_may_be(
    environment: dict[str, str], flags: list[Given], parts: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(environment=environment, flags=flags)
    for part in parts:
        assert part in str(caught.value)


def test_a_mistake_in_the_file_names_file_and_key(tmp_path: Path) -> None:
    config = file(tmp_path, "[kafka]\nport = '90x'\n")
    with pytest.raises(SettingsError, match=r"tierlog\.toml: kafka\.port: kafka\.port cannot be '90x'"):
        load_settings(config=config)


def test_a_file_that_is_not_toml_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"is not TOML.*line 1"):
        load_settings(config=file(tmp_path, "[kafka\n"))
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load_settings(config=str(tmp_path / "absent.toml"))


def test_addresses() -> None:
    assert [each.value for each in split_address("[::1]:9092", "--kafka", "kafka")] == ["::1", "9092"]
    for bad in ("9092", ":9092", "host:", "host:port", "host:70000", "host:²"):
        with pytest.raises(SettingsError, match="HOST:PORT"):
            split_address(bad, "--kafka", "kafka")


def test_the_reference_page_is_current() -> None:
    assert set(SECTIONS) == {setting.section for setting in all_settings().values()}
    assert PAGE.read_text() == settings_page(), "run `make settings-page`"
