"""The metadata store of a cluster, in etcd, under a key prefix: several clusters can share one etcd.

Each call is one request (`hot_tier.cluster.etcd_client`), a long range several; each watch is one stream
(`hot_tier.cluster.etcd_watch`).
Revisions are etcd's own. They grow with every write to etcd, also by other programs.
"""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from hot_tier.cluster import etcd_wire as wire
from hot_tier.cluster.etcd_client import EtcdClient
from hot_tier.cluster.etcd_watch import EtcdWatch
from hot_tier.cluster.store import (
    Compare,
    Delete,
    Event,
    KeyValue,
    LeaseId,
    Put,
    Range,
    Revision,
    check_transaction,
)
from hot_tier.errors import LeaseExpired, MetadataCompacted

DEFAULT_PREFIX: Final = "/tierlog/"
PAGE_KEYS: Final = 1000


class EtcdStore:
    """`MetadataStore` over etcd. Call `open` first, from the loop that uses it."""

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str = DEFAULT_PREFIX,
        *,
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        assert prefix.endswith("/") and prefix.isascii()
        self._prefix = prefix
        self._client = EtcdClient(endpoints, tls, user, password)
        self._renewals = EtcdClient(endpoints, tls, user, password)
        """Renewals have a connection of their own, which is closed when a renewal gets no answer. With several
        connections, a broker whose requests arrive and that gets no answers could renew its lease once on each of
        them, and would be replaced so much later."""
        self._watches: set[EtcdWatch] = set()

    async def open(self) -> None:
        """Connects. Raises MetadataUnavailable if no endpoint answers."""
        await self._client.open()
        await self._renewals.open()
        try:
            await self._client.call("/v3/kv/range", wire.count_body(self._prefix), wire.read_revision)
        except BaseException:
            await self.close()
            raise

    async def get(self, key: str) -> KeyValue | None:
        items = (await self._read(wire.get_body(self._prefix + key))).items
        return items[0] if items else None

    async def range(self, prefix: str) -> Range:
        """Reads in pages, all as of the revision of the first page: etcd sends nothing until a whole answer is
        ready."""
        prefix = self._prefix + prefix
        while True:
            first = page = await self._read(wire.range_body(prefix, PAGE_KEYS))
            items = list(first.items)
            try:
                while page.more:
                    last_key = self._prefix + items[-1].key
                    page = await self._read(wire.next_body(prefix, PAGE_KEYS, last_key, first.revision))
                    items += page.items
            except MetadataCompacted:
                continue
            return Range(tuple(items), first.revision)

    async def transact(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Revision | None:
        check_transaction(compares, writes)
        body = wire.transaction_body(self._prefix, compares, writes)
        return await self._client.call("/v3/kv/txn", body, wire.read_transaction, repeatable=not writes)

    async def watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        watch = EtcdWatch(self._client, self._prefix, prefix, from_revision)
        self._watches.add(watch)
        try:
            async with aclosing(watch.batches()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._watches.discard(watch)

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        """Grants a lease. If the answer is lost the request is sent again: a lease that nobody knows of expires by
        itself."""
        seconds = -(-ttl_ms // 1000)
        return await self._client.call("/v3/lease/grant", {"TTL": str(seconds)}, wire.read_lease)

    async def keep_alive(self, lease: LeaseId) -> bool:
        return await self._renewals.call("/v3/lease/keepalive", {"ID": str(lease)}, wire.read_kept_alive)

    async def revoke_lease(self, lease: LeaseId) -> None:
        try:
            await self._client.call("/v3/lease/revoke", {"ID": str(lease)}, wire.read_revision)
        except LeaseExpired:
            pass

    async def close(self) -> None:
        await self._client.close()
        await self._renewals.close()
        for watch in tuple(self._watches):
            watch.close()

    async def _read(self, body: wire.Document) -> wire.Page:
        return await self._client.call("/v3/kv/range", body, partial(wire.read_page, self._prefix))
