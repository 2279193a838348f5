"""What Arrow asks for the data keys of a file. In a module of its own, as its base class needs Arrow at once
(`tierlog.loading`).
"""

import pyarrow.parquet.encryption as pe

from cold_tier.errors import NotEncrypted
from cold_tier.keys.master import MasterKeys
from hot_tier.errors import TierlogError


class KeyClient(pe.KmsClient):
    """Asks for each data key once: Arrow unwraps it for every column of every row group. Takes one master key alone.

    A file can name others. Otherwise an attacker could make a file with a key of AWS KMS that he lets everybody use.
    """

    def __init__(self, keys: MasterKeys, master: str) -> None:
        super().__init__()
        self._keys = keys
        self._master = master
        self._unwrapped: dict[tuple[str, str], bytes] = {}
        self.failure: TierlogError | None = None

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return self._keys.wrap(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # type: ignore[override]
        known = self._unwrapped.get((wrapped_key, master_key_identifier))
        if known is None:
            try:
                if master_key_identifier != self._master:
                    raise NotEncrypted(f"it has data keys of {master_key_identifier!r}, but it names {self._master!r}")
                known = self._keys.unwrap(wrapped_key, master_key_identifier)
            except TierlogError as error:
                self.failure = error
                raise
            self._unwrapped[wrapped_key, master_key_identifier] = known
        return known
