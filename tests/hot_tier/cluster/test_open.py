"""Which store an address names, and what is said of one that names none."""

from pathlib import Path

import pytest

from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.etcd_settings import EtcdSettings
from hot_tier.cluster.open import metadata_store, parse_etcd_address
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.errors import SettingsError


@pytest.mark.parametrize(
    ("address", "endpoints", "prefix"),
    [
        ("etcd://a:1", ["a:1"], "/tierlog/"),
        ("etcd://a:1/", ["a:1"], "/tierlog/"),
        ("etcd://a,10.0.0.2:99,[::1]:3", ["a:2379", "10.0.0.2:99", "[::1]:3"], "/tierlog/"),
        ("etcd://a/prod", ["a:2379"], "/prod/"),
        ("etcd://a/team/logs", ["a:2379"], "/team/logs/"),
    ],
)
def test_addresses(address: str, endpoints: list[str], prefix: str) -> None:
    assert parse_etcd_address(address) == (endpoints, prefix)


@pytest.mark.parametrize(
    "address",
    [
        *("", "mysql", "etcd", "etcd:a:1", "http://a:1", "etcd://", "etcd://,", "etcd://a:1,", "etcd://u@a:1"),
        *(
            "etcd://a:0",
            "etcd://a:65536",
            "etcd://a:b",
            "etcd://a:1//x",
            "etcd://a:1/x/",
            "etcd://a:1/ä",
            "etcd://a:1?x=y",
        ),
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(SettingsError, match=r"cluster\.metadata cannot be"):
        metadata_store(address, EtcdSettings(), "/data")


def test_the_two_kinds() -> None:
    assert isinstance(metadata_store("sqlite", EtcdSettings(), "/data"), SqliteStore)
    store = metadata_store("etcd://a:1,b", EtcdSettings(), "/data")
    assert isinstance(store, EtcdStore)
    assert store._client.endpoints == ("http://a:1", "http://b:2379")


@pytest.mark.parametrize(
    "values", [{"cert": "c"}, {"key": "k"}, {"cert": "c", "key": "k"}, {"user": "u"}, {"password": "p"}]
)
def test_half_a_setting_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=f"etcd.{next(iter(values))}"):
        EtcdSettings(**values)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"etcd\.ca.*No such file"):
        metadata_store("etcd://a", EtcdSettings(ca=str(tmp_path / "none.pem")), "")
    (tmp_path / "bad.pem").write_text("not a certificate")
    with pytest.raises(SettingsError, match=r"etcd\.ca"):
        metadata_store("etcd://a", EtcdSettings(ca=str(tmp_path / "bad.pem")), "")
