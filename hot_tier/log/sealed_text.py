"""Small text files that say what they are and whether they are whole.

    tierlog <kind> 1
    <line>
    …
    crc32c <8 hex digits of all bytes before this line>

They are read by people too. Damaged or cut short, such a file reads as None, like one that is missing.
"""

from collections.abc import Sequence

from hot_tier.record.crc import crc32c

_VERSION = 1


def write_sealed_text(kind: str, lines: Sequence[str]) -> bytes:
    body = "".join(f"{line}\n" for line in (f"tierlog {kind} {_VERSION}", *lines)).encode()
    return body + f"crc32c {crc32c(body):08x}\n".encode()


def read_sealed_text(kind: str, content: bytes) -> list[str] | None:
    body, mark, checksum = content.rpartition(b"crc32c ")
    if not mark or checksum != f"{crc32c(body):08x}\n".encode():
        return None
    first, *lines = body.decode("utf-8", "replace").removesuffix("\n").split("\n")
    return lines if first == f"tierlog {kind} {_VERSION}" else None
