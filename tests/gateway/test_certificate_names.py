"""Names from certificates, by Kafka's rules."""

import ssl
from pathlib import Path

import pytest

from gateway.certificate_names import NameRules
from hot_tier.errors import SettingsError
from tests.support.certificates import Authority


@pytest.fixture
def certificate(tmp_path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(Authority(tmp_path).issue("Ada").certificate).read_text().partition("\n\n")[0])


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (["RULE:^CN=([^,]+).*$/$1/"], "Ada"),
        (["RULE:^CN=([^,]+).*$/$1/L"], "ada"),
        (["RULE:^CN=([^,]+).*$/user-$1/U"], "USER-ADA"),
        (["RULE:^OU=nobody$/x/", "RULE:^CN=([^,]+).*$/$1@example/"], "Ada@example"),
        (["RULE:^OU=nobody$/x/"], None),
        ([], None),
    ],
)
def test_the_first_rule_that_fits_makes_the_name(certificate: bytes, rules: list[str], name: str | None) -> None:
    assert NameRules(rules, "tls.principal_rules").name(certificate) == name


def test_the_default_is_the_whole_subject(certificate: bytes) -> None:
    name = NameRules(["DEFAULT"], "tls.principal_rules").name(certificate)
    assert name is not None
    assert name.startswith("CN=Ada,")


@pytest.mark.parametrize("rule", ["", "default", "RULE:x", "RULE:(/x/", "RULE:x/$1/", "RULE:x/y/Z"])
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(SettingsError, match="is not a rule"):
        NameRules([rule], "tls.principal_rules")
