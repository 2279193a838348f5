"""A user's name from the subject of a certificate, by rules in the form of Kafka's `ssl.principal.mapping.rules`."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import cryptography.x509 as x509

from hot_tier.errors import SettingsError

_RULE = re.compile(r"RULE:(?P<pattern>(?:[^/\\]|\\.)*)/(?P<replacement>(?:[^/\\]|\\.)*)/(?P<case>[LU]?)")


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str
    case: str


class NameRules:
    def __init__(self, rules: Iterable[str], where: str) -> None:
        """Raises SettingsError if a rule is not one."""
        self._rules = [None if rule == "DEFAULT" else _parse(rule, where) for rule in rules]

    def name(self, certificate: bytes) -> str | None:
        """Returns the name for a certificate in DER. Returns None if no rule fits its subject."""
        subject = x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
        for rule in self._rules:
            if rule is None:
                return subject
            if rule.pattern.fullmatch(subject):
                name = rule.pattern.sub(rule.replacement, subject, count=1)
                return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)
        return None


def _parse(rule: str, where: str) -> Rule:
    found = _RULE.fullmatch(rule)
    try:
        if found is not None:
            pattern = re.compile(found["pattern"])
            replacement = re.sub(r"\$(\d)", r"\\g<\1>", found["replacement"])
            pattern.sub(replacement, "")
            return Rule(pattern, replacement, found["case"])
    except re.error:
        pass
    raise SettingsError(
        f"{rule!r} is not a rule for names", where=where, hint="write RULE:pattern/replacement/, or DEFAULT"
    )
