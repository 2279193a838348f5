"""Secrets as references: what they resolve to, and that no error shows one."""

from pathlib import Path
from typing import Any

import pytest

from hot_tier.errors import SettingsError
from hot_tier.secrets import LONGEST
from spark.jobs.replay import _kafka_setting
from spark.jobs.replay_target import TargetTopic
from tierlog.settings import Given, Settings, all_settings, load_settings

KEYS = [setting.key for setting in all_settings().values() if setting.secret]
PARTNERS = {"etcd.password": ("etcd.user", "u"), "login.first_password": ("login.first_user", "u")}
SECRET = "hunter2-hunter2"


def load(key: str, value: Any, source: str = "") -> Settings:
    partner = PARTNERS.get(key)
    beside = [Given(*partner, f"--{partner[0]}")] if partner else []
    return load_settings(flags=[*beside, Given(key, value, source or f"--{key}")])


def value_of(settings: Settings, key: str) -> object:
    section, name = key.split(".")
    return getattr(getattr(settings, section), name)


def test_every_setting_that_sounds_like_a_secret_is_marked() -> None:
    sounding = [
        setting.key
        for setting in all_settings().values()
        if any(word in setting.name for word in ("password", "secret", "token")) and setting.type is str
    ]
    assert set(sounding) <= set(KEYS)
    assert set(KEYS) >= {"etcd.password", "login.first_password"}


@pytest.mark.parametrize("key", KEYS)
def test_from_a_file_and_from_the_environment(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "secret"
    for ending in ("", "\n", "\r\n"):
        held.write_bytes(f" {SECRET}\n ".encode() + ending.encode())
        assert value_of(load(key, f"file:{held}"), key) == f" {SECRET}\n "
    monkeypatch.setenv("ELSEWHERE", SECRET)
    settings = load(key, "env:ELSEWHERE")
    assert value_of(settings, key) == SECRET
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("file:{}/none", "none cannot be read: No such file"),
        ("file:{}", "cannot be read: Is a directory"),
        ("file:{}/empty", "is empty"),
        ("file:{}/large", "is larger than"),
        ("file:{}/binary", "is no text"),
        ("env:NOT_SET", "variable NOT_SET is not set"),
        (SECRET, "others on this machine see the flags"),
    ],
)
def test_what_cannot_be_read_is_said_without_the_secret(value: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_text(SECRET * LONGEST)
    (tmp_path / "binary").write_bytes(SECRET.encode() + b"\xff")
    with pytest.raises(SettingsError) as refused:
        load("etcd.password", value.format(tmp_path))
    assert said in refused.value.what and "etcd.password" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_file_that_everybody_can_read_may_name_a_secret_and_not_have_it(tmp_path: Path) -> None:
    held, config = tmp_path / "secret", tmp_path / "tierlog.toml"
    held.write_text(SECRET)

    def given(value: object) -> str:
        config.write_text(f"[etcd]\nuser = 'u'\npassword = {value!r}\n")
        return load_settings(config=str(config)).etcd.password

    config.touch()
    config.chmod(0o640)
    assert given(SECRET) == SECRET
    config.chmod(0o644)
    assert given(f"file:{held}") == SECRET
    with pytest.raises(SettingsError, match="everybody on this machine can read") as refused:
        given(SECRET)
    assert SECRET not in str(refused.value)
    with pytest.raises(SettingsError, match="is no text") as refused:
        given(20261118)
    assert "20261118" not in str(refused.value)


def test_a_password_for_the_target_of_a_replay_is_a_reference_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSEWHERE", SECRET)
    assert _kafka_setting("sasl.password=env:ELSEWHERE") == ("sasl.password", SECRET)
    assert _kafka_setting("ssl.ca.location=file:x") == ("ssl.ca.location", "file:x")
    with pytest.raises(SettingsError, match="see the flags") as refused:
        _kafka_setting(f"sasl.password={SECRET}")
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(TargetTopic({"sasl.password": SECRET}, "t", "job"))
