"""Realistic events as a log of record batches, to measure compression and archiving."""

import json
import random
from functools import cache
from uuid import UUID

from hot_tier.record.batch import assign
from hot_tier.record.records import NewRecord, encode_records

_WORDS = ("amber", "basin", "birch", "brook", "cedar", "cliff", "coral", "crest", "delta", "dune", "ember", "fern")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    "okhttp/4.12.0",
)
_BATCH_BYTES = 64 << 10
_KINDS = 20_000


@cache
def _events() -> tuple[tuple[bytes, bytes], ...]:
    """Yields (key, value) pairs of about 1 KB. Each is different, and they are the same in every run."""
    rng = random.Random(20)
    made = []
    for number in range(_KINDS):
        customer = rng.randrange(200_000)
        event = {
            "event_id": str(UUID(int=rng.getrandbits(128))),
            "type": rng.choice(("order_created", "order_paid", "order_shipped", "order_cancelled")),
            "ts": 1_760_000_000_000 + number * 7 + rng.randrange(5),
            "customer": {
                "id": customer,
                "country": rng.choice(("DE", "US", "FR", "JP", "BR")),
                "email": f"{rng.choice(_WORDS)}.{rng.choice(_WORDS)}{rng.randrange(9999)}@example.com",
            },
            "session": f"{rng.getrandbits(64):016x}",
            "currency": "EUR",
            "items": [
                {
                    "sku": f"SKU-{rng.randrange(50_000):06d}",
                    "title": " ".join(rng.choices(_WORDS, k=4)),
                    "quantity": rng.randrange(1, 5),
                    "price": round(rng.random() * 100, 2),
                }
                for _ in range(rng.randrange(3, 8))
            ],
            "address": {
                "street": f"{rng.choice(_WORDS)} street {rng.randrange(300)}",
                "zip": f"{rng.randrange(99_999):05d}",
                "city": rng.choice(_WORDS),
            },
            "agent": rng.choice(_AGENTS),
        }
        made.append((str(customer).encode(), json.dumps(event).encode()))
    return tuple(made)


def event_batches(log_bytes: int, codec: int) -> tuple[bytes, int]:
    """Returns about `log_bytes` of records (before compression) in batches of 64 KB, and the end offset."""
    log, offset, size = bytearray(), 0, 0
    batch: list[NewRecord] = []
    batch_size = 0
    while size < log_bytes:
        key, value = _events()[(offset + len(batch)) % _KINDS]
        batch.append(NewRecord(1_760_000_000_000 + offset + len(batch), key, value, ()))
        batch_size += len(key) + len(value)
        if batch_size >= _BATCH_BYTES:
            data = encode_records(batch, codec=codec)
            assign(data, offset, 0)
            log += data
            offset += len(batch)
            size += batch_size
            batch, batch_size = [], 0
    return bytes(log), offset
