"""Decodes transactional ids from the records of one partition of the topic of transactions.

A value that cannot be read makes only its own transactional id damaged: it must not look like one that was never used,
because then an open transaction would be forgotten.
"""

from typing import NamedTuple

from gateway.coordinators.journal.replay import Latest
from gateway.coordinators.transactions.keys import read_key
from gateway.coordinators.transactions.transaction import Transaction
from gateway.coordinators.transactions.values import read_transaction
from hot_tier.errors import CorruptLog


class Loaded(NamedTuple):
    transactions: dict[str, Transaction]
    damaged: dict[str, str]
    """Why each of these cannot be read."""


def decode_transactions(latest: Latest) -> Loaded:
    loaded = Loaded({}, {})
    for key, value in latest.items():
        try:
            transactional_id = read_key(key)
        except CorruptLog:
            continue  # No client can ask for a name that cannot be read.
        if transactional_id is None:
            continue
        try:
            loaded.transactions[transactional_id] = read_transaction(value)
        except CorruptLog as error:
            loaded.damaged[transactional_id] = str(error)
    return loaded
