"""Users in cluster metadata, with their passwords and API keys: how they are made, changed and deleted.

The keys of a user go with the user, in the same write: a user of the same name that is made later does not have them.
A new key also writes the user's value again, so that it conflicts with a deletion of the user.
"""

import asyncio
from collections.abc import Callable, Mapping

from hot_tier.cluster import api_keys, credentials, model
from hot_tier.cluster.api_keys import MAX_KEYS, MAX_KEYS_OF_USER, OPERATIONS, NewKey
from hot_tier.cluster.credentials import MECHANISMS, Credential, make_credential
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.store import ABSENT, Compare, Delete, MetadataStore, Put
from hot_tier.errors import InvalidRequest, PolicyViolation, UnknownApiKey, UnknownUser

MAX_USERS = 100_000
MAX_NAME_BYTES = 249

Credentials = Mapping[str, Credential]


class UserAdmin:
    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self._store = store
        self._image = image

    async def prepare(self) -> None:
        """Makes the secret for the salts of users who do not exist, once for the cluster: they are the same at every
        broker and after a restart, like those of users who do."""
        if not self._image.salts:
            await self._store.transact(
                [Compare(model.SALTS_KEY, ABSENT)], [Put(model.SALTS_KEY, credentials.new_salts())]
            )
            item = await self._store.get(model.SALTS_KEY)
            assert item is not None
            await self._image.reached(item.revision)

    async def set_password(self, name: str, password: str) -> None:
        """Makes the user, or gives it another password."""
        if not password:
            raise InvalidRequest("a password is not empty", where=name)
        made = {name: await asyncio.to_thread(make_credential, name, password) for name in MECHANISMS}
        await self.change(name, lambda _: made)

    async def delete(self, name: str) -> None:
        def nothing(known: Credentials) -> Credentials:
            if not known:
                raise UnknownUser(f"there is no user {name!r}")
            return {}

        await self.change(name, nothing)

    async def change(self, name: str, decide: Callable[[Credentials], Credentials]) -> None:
        """Writes what `decide` makes of a user's credentials. Returns when the image shows it."""
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise InvalidRequest(f"a user's name has 1 to {MAX_NAME_BYTES} bytes")
        key = model.user_key(name)
        revision = None
        while revision is None:
            item = await self._store.get(key)
            known = {} if item is None else credentials.decode(key, item.value)
            wanted = decide(known)
            if not known and wanted and len(self._image.users) >= MAX_USERS:
                raise PolicyViolation(f"there are {MAX_USERS} users already", hint="delete those that are not needed")
            if wanted == known:
                return
            gone = () if wanted else (await self._store.range(api_keys.of_user(name))).items
            revision = await self._store.transact(
                [Compare(key, ABSENT if item is None else item.revision)],
                [
                    Put(key, credentials.encode(wanted)) if wanted else Delete(key),
                    *(Delete(each.key) for each in gone),
                ],
            )
        await self._image.reached(revision)

    async def create_key(
        self, name: str, now_ms: int, expires_ms: int | None = None, scope: frozenset[str] | None = None
    ) -> NewKey:
        """Makes an API key that acts as this user."""
        if scope is not None and (not scope or not scope <= OPERATIONS):
            known = ", ".join(sorted(OPERATIONS))
            raise InvalidRequest("a scope names operations", where=name, hint=f"use some of {known}; or leave it out")
        if expires_ms is not None and expires_ms <= now_ms:
            raise PolicyViolation("an API key that has expired already", where=name, hint="let it expire later")
        key = model.user_key(name)
        revision = None
        while revision is None:
            item = await self._store.get(key)
            if item is None:
                raise UnknownUser(f"there is no user {name!r}")
            count = len((await self._store.range(api_keys.of_user(name))).items)
            if count >= MAX_KEYS_OF_USER or len(self._image.api_keys) >= MAX_KEYS:
                raise PolicyViolation(
                    f"there are {count} API keys of {name!r} and {len(self._image.api_keys)} in all",
                    hint="delete those that are not needed",
                )
            made = api_keys.make_key(name, now_ms, expires_ms, scope)
            place = api_keys.key_of(name, made.kept.id)
            revision = await self._store.transact(
                [Compare(key, item.revision), Compare(place, ABSENT)],
                [Put(key, item.value), Put(place, api_keys.encode(made.kept))],
            )
        await self._image.reached(revision)
        return made

    async def delete_key(self, key_id: str) -> None:
        known = self._image.api_keys.get(key_id)
        if known is None:
            raise UnknownApiKey(f"there is no API key {key_id!r}")
        revision = await self._store.transact([], [Delete(api_keys.key_of(known.user, known.id))])
        if revision is not None:
            await self._image.reached(revision)
