"""Orders of an invented shop over the last 30 days. They come from a fixed seed, so everybody gets the same."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

DAY_MS = 86_400_000
DAYS = 30

_CITIES = ("Lisbon", "Osaka", "Nairobi", "Quito", "Gdańsk", "Tromsø", "Perth", "Montréal")
_ITEMS = (
    ("espresso beans 1 kg", 21.5),
    ("burr grinder", 139.0),
    ("paper filters", 6.9),
    ("kettle", 64.0),
    ("mug", 12.0),
)
_STATES = ("placed", "paid", "packed", "shipped", "delivered")


@dataclass(frozen=True, slots=True)
class Order:
    number: int
    """Counts from 0. It is also in the value, so that a reader finds missing and repeated orders."""
    key: str
    value: bytes
    timestamp: int


def orders(count: int, now_ms: int, first: int = 0) -> Iterator[Order]:
    """Returns `count` events, oldest first, evenly over the last 30 days. A customer's events share a key."""
    draw = random.Random(first + 20260301)
    step = DAYS * DAY_MS / max(count, 1)
    for index in range(count):
        customer = f"customer-{draw.randrange(500):03}"
        item, price = draw.choice(_ITEMS)
        quantity = draw.randint(1, 4)
        timestamp = int(now_ms - DAYS * DAY_MS + index * step)
        event = {
            "order": first + index,
            "customer": customer,
            "state": draw.choice(_STATES),
            "city": draw.choice(_CITIES),
            "lines": [{"item": item, "quantity": quantity, "price": price}],
            "total": round(quantity * price, 2),
            "at": timestamp,
        }
        yield Order(first + index, customer, json.dumps(event, ensure_ascii=False).encode(), timestamp)


def number_of(value: bytes) -> int:
    return int(json.loads(value)["order"])
