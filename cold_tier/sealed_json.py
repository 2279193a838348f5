"""JSON documents whose last field is the CRC-32C of everything before it.

Without a checksum, damage would go unnoticed: a flipped digit can make another valid document.
"""

import re
from typing import Any, Final

import orjson

from cold_tier.objects.store import Buffer
from hot_tier.record.crc import crc32c

_SEAL: Final = re.compile(rb',"crc32c":"([0-9a-f]{8})"}\Z')


def write_sealed(document: Any) -> bytes:
    """`fields` must hold at least one field."""
    body = orjson.dumps(document)
    return body[:-1] + b',"crc32c":"%08x"}' % crc32c(body[:-1])


def read_sealed(data: Buffer) -> Any:
    """Raises ValueError if the document is damaged. A document of version 0.1 has no checksum and is taken as it is."""
    content = bytes(data)
    seal = _SEAL.search(content)
    if seal is not None and int(seal[1], 16) != crc32c(content[: seal.start()]):
        raise ValueError("its checksum is wrong")
    return orjson.loads(content)
