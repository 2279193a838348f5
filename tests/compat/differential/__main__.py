"""`python -m tests.compat.differential` prints every difference that is not argued for, versions beside each other."""

import re
import tempfile
from pathlib import Path

from .argued import reason
from .run import compare

with tempfile.TemporaryDirectory(prefix="differential-") as scratch:
    outcome = compare(Path(scratch))
grouped: dict[tuple[str, str, str, str], list[str]] = {}
for one in outcome.found:
    if reason(one):
        continue
    question, _, version = one.question.rpartition(" v")
    same = question or one.question, re.sub(r"\[\d+\]", "[]", one.path), repr(one.kafka), repr(one.tierlog)
    grouped.setdefault((*same,), []).append(version)
for (question, path, kafka, tierlog), versions in grouped.items():
    print(f"{question} v{','.join(dict.fromkeys(versions))}\n    {path or 'answer'}: kafka {kafka}, tierlog {tierlog}")
for key, (kafka, ours) in outcome.versions.items():
    print(key, kafka, ours)
print(f"{outcome.questions} questions, {len(outcome.found)} differences")
