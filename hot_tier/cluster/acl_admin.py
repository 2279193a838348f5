"""How access rules are added and removed: in steps that share the store's transactions, each rule under its own key.

A rule is there or not, so nothing is compared: whoever adds what is there, or removes what is gone, changes nothing. A
call returns when this node's image shows the change, so the next request on this node is decided by it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from hot_tier.cluster.acls import Rule, acl_key, check_rule
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.store import MAX_OPERATIONS, Delete, MetadataStore, Put
from hot_tier.errors import PolicyViolation

MAX_RULES: Final = 20_000


class AclAdmin:
    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self._store = store
        self._image = image

    async def add(self, rules: Iterable[Rule]) -> None:
        """Raises InvalidRequest or PolicyViolation before anything is written."""
        wanted = list(dict.fromkeys(rules))
        for rule in wanted:
            check_rule(rule)
        new = [rule for rule in wanted if rule not in self._image.acls]
        if len(self._image.acls) + len(new) > MAX_RULES:
            raise PolicyViolation(
                f"there would be more than {MAX_RULES} access rules",
                hint="remove those that are not needed, or use rules with prefixes",
            )
        await self._write([Put(acl_key(rule), b"{}") for rule in new])

    async def remove(self, rules: Iterable[Rule]) -> None:
        await self._write([Delete(acl_key(rule)) for rule in dict.fromkeys(rules)])

    async def _write(self, writes: Sequence[Put | Delete]) -> None:
        revision = None
        for at in range(0, len(writes), MAX_OPERATIONS):
            revision = await self._store.transact([], writes[at : at + MAX_OPERATIONS])
        if revision is not None:
            await self._image.reached(revision)
