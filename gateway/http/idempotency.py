"""A post that carries an `Idempotency-Key` is stored once, however often it is sent.

The key, with the sender's name, makes the id of a producer that writes one batch. So it is the partition's leader who
knows what was stored, from the log itself: after a restart, and at the next leader too. The sequence of the batch comes
from the message, so that the same key with another message is refused instead of taken for the same.

- The partition must be the same each time: it is the one asked for, that of the record's key, or else that of this key.
- A partition remembers a key for `log.idempotency_key_window_ms`. While it has `MOST_PRODUCERS`, new keys are refused.
  So memory is bounded, and no key is forgotten early.
"""

from hashlib import blake2b
from typing import Final

from gateway.http.kinds import Kind
from gateway.http.parameters import Parameter
from gateway.http.problems import Problem
from gateway.http.producer import Numbered
from hot_tier.log.producers import MADE_UP, MAX_SEQUENCE
from hot_tier.record.records import NewRecord
from hot_tier.replication.led_partition import LedPartition

MOST_PRODUCERS: Final = 100_000
"""Of one partition, with those of Kafka clients."""
KEY_MAX: Final = 255

REPLAYED: Final = "Idempotent-Replayed"
"""The header of an answer to a message that was stored before."""

KEY_REUSED: Final = Kind(
    409,
    "idempotency-key-reused",
    "The Idempotency-Key was used for another request",
    "Give each request a key of its own, and repeat a request only as it was.",
)
TOO_MANY_KEYS: Final = Kind(
    429,
    "too-many-idempotency-keys",
    "There are too many keys to remember",
    "Use more partitions, or post many messages at once; a Kafka producer needs no keys.",
)


NOT_SERVED: Final = Kind(
    409,
    "idempotency-key-not-served",
    "A broker of this cluster does not know the Idempotency-Key",
    "Upgrade all brokers to 0.2 or newer, or post without a key.",
)


def _key(text: str) -> str:
    if not 1 <= len(text) <= KEY_MAX or not text.isascii() or not text.isprintable():
        raise ValueError(f"must be 1 to {KEY_MAX} printable ASCII characters")
    return text


IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "header",
    "Names this request: repeated with the same key, it is done once.",
    {"type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": "^[ -~]+$"},
    _key,
)


def producer_of(key: str, sender: str, record: NewRecord) -> Numbered:
    """Returns who writes the message: the same for each attempt."""
    identity = _digest(sender.encode("utf-8", "surrogatepass"), key.encode())
    parts = [record.key, record.value]
    for name, value in record.headers:
        parts += [(name or "").encode(), value]
    content = _digest(*(b"-" if each is None else b"+" + each for each in parts))
    return Numbered(MADE_UP | identity % MADE_UP, 0, content & MAX_SEQUENCE)


def check_room(partition: LedPartition, producer: Numbered) -> None:
    """Raises a Problem if the key is new here, and there is no room for it."""
    full = partition.producer_count >= MOST_PRODUCERS
    if full and not partition.next_sequence(producer.producer_id, producer.producer_epoch):
        raise Problem(TOO_MANY_KEYS, f"{partition.tp} remembers {partition.producer_count} producers and keys")


def _digest(*parts: bytes) -> int:
    found = blake2b(digest_size=8)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return int.from_bytes(found.digest(), "little")
