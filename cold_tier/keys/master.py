"""Master keys by name, whoever holds them. A topic names one in `archive.encryption.key`.

A *name* is what a topic says: `orders` is in the key file, `aws-kms:alias/orders` in AWS KMS. A *master key* is what is
stored with an object: name and version, `orders/2`, or the KMS key's own address. Data keys are wrapped as parquet-java
does it (`KeyToolkit.encryptKeyLocally`): base64 of nonce, AES-256-GCM ciphertext and tag, with the master key's name as
additional data.

The key file is read again when it changes, within `_LOOK_S`. `epoch` then counts up, and also when AWS KMS says for the
first time that a key is destroyed. Whoever keeps what a key decrypted then drops it.
"""

import base64
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from cold_tier.errors import CorruptObject, KeyMissing, KeyShredded
from cold_tier.keys.file import KeySet, NamedKey, read_key_file
from cold_tier.keys.kms import PREFIX, AwsKms, shredded
from hot_tier.clock import steady_s

T = TypeVar("T")

_LOOK_S: Final = 1.0
_NONCE_BYTES: Final = 12


class MasterKeys:
    """Safe to share between threads."""

    def __init__(self, file: str = "", region: str = "") -> None:
        self._file = file
        self._keys: KeySet = {}
        self._signature: tuple[int, ...] = ()
        self._looked_s = -_LOOK_S
        self._kms = AwsKms(region or None)
        self._turn = threading.Lock()
        self._epoch = 0
        self._gone: set[str] = set()
        """The keys of AWS KMS that are known to be destroyed."""
        if file:
            self._look()

    @property
    def epoch(self) -> int:
        """Returns a number that is higher after the key file has changed."""
        if self._file and steady_s() - self._looked_s >= _LOOK_S:
            self._look()
        return self._epoch

    def newest(self, name: str) -> str:
        """Returns the master key that new objects of this name get."""
        if name.startswith(PREFIX):
            return self._asked(name, lambda: self._kms.resolve(name))
        return f"{name}/{self._named(name, name).newest}"

    def wrap(self, data_key: bytes, master: str) -> str:
        if master.startswith(PREFIX):
            return self._asked(master, lambda: self._kms.wrap(data_key, master))
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(self._version(master)).encrypt(nonce, data_key, master.encode())
        return base64.b64encode(nonce + sealed).decode()

    def unwrap(self, wrapped: str, master: str) -> bytes:
        if master.startswith(PREFIX):
            return self._asked(master, lambda: self._kms.unwrap(wrapped, master))
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._version(master)
        try:
            data = base64.b64decode(wrapped, validate=True)
            return AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], master.encode())
        except (InvalidTag, ValueError) as error:
            raise CorruptObject(
                f"its data key was not made with the key {master!r} that it names",
                hint="this key file has another key of that name, or somebody changed the object",
            ) from error

    def schedule_deletion(self, master: str, days: int) -> None:
        self._kms.schedule_deletion(master, days)

    def _asked(self, name: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except KeyShredded:
            with self._turn:
                self._epoch += name not in self._gone
                self._gone.add(name)
            raise

    def _version(self, master: str) -> bytes:
        name, _, number = master.rpartition("/")
        found = self._named(name, master)
        if number.isdecimal() and int(number) not in found.versions:
            self._look()
            found = self._named(name, master)
        if not number.isdecimal() or int(number) not in found.versions:
            raise self._missing(master)
        return found.versions[int(number)]

    def _named(self, name: str, wanted: str) -> NamedKey:
        _ = self.epoch
        if name not in self._keys and self._file:
            self._look()  # It may have been made a moment ago.
        found = self._keys.get(name)
        if found is None:
            raise self._missing(wanted)
        if found.shredded_ms is not None:
            raise shredded(name)
        return found

    def _look(self) -> None:
        """Reads the file if it changed. While it cannot be read, no key is known."""
        with self._turn:
            self._looked_s = steady_s()
            signature: tuple[int, ...] = ()
            with suppress(OSError):
                there = os.stat(self._file)
                signature = (there.st_ino, there.st_mtime_ns, there.st_size, there.st_mode)
            if signature == self._signature and self._epoch:
                return
            first, self._signature = self._epoch == 0, signature
            self._epoch += 1
            self._keys = {}
            try:
                self._keys = read_key_file(self._file)
            except Exception:
                if first:
                    raise

    def _missing(self, name: str) -> KeyMissing:
        held = f"the key file {self._file} does not have" if self._file else "no key file is set, so there is not"
        return KeyMissing(
            f"{held} the key {name!r}",
            hint="put the key into the file that store.keys_file names (in Spark: the option keysFile); offsets and "
            "times can be read without it",
        )


def name_of(master: str) -> str:
    """Returns the name of a master key, without its version."""
    return master if master.startswith(PREFIX) else master.rpartition("/")[0]
