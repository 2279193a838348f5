"""Records to send: JSON events of one size, all different, about as compressible as real ones."""

import json
import random
import time
from pathlib import Path

from hot_tier.record.records import NewRecord, encode_records

ACTIONS = ("view", "click", "add_to_cart", "purchase", "search", "login", "logout")
PATHS = ("/", "/home", "/search", "/product/{}", "/cart", "/checkout", "/account/orders/{}")
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet", "kilo", "lima")


def event(source: random.Random, number: int) -> str:
    return json.dumps(
        {
            "id": f"{source.getrandbits(64):016x}",
            "user": source.randrange(50_000),
            "action": source.choice(ACTIONS),
            "path": source.choice(PATHS).format(source.randrange(10_000)),
            "at": 1_790_000_000_000 + number * 7,
            "price": round(source.uniform(1, 500), 2),
            "text": " ".join(source.choice(WORDS) for _ in range(120)),
        },
        separators=(",", ":"),
    )


def write_batch(path: Path, record_bytes: int) -> Path:
    """Writes one batch with one event, as producers send it."""
    value = event(random.Random(7), 0).encode()[:record_bytes].ljust(record_bytes)
    path.write_bytes(encode_records([NewRecord(time.time_ns() // 1_000_000, None, value)]))
    return path


def write_records(path: Path, record_bytes: int, count: int = 20_000) -> Path:
    """Writes `count` records of exactly `record_bytes`, one after the other without separators."""
    source = random.Random(7)
    with path.open("wb") as file:
        for number in range(count):
            file.write(event(source, number).encode()[:record_bytes].ljust(record_bytes))
    return path
