"""Every error of the cold tier, named by its cause. `hot_tier.errors` says how errors are made."""

from hot_tier.errors import TierlogError


class StoreError(TierlogError):
    """The object store did not do what it was asked."""


class StoreUnavailable(StoreError):
    """No answer, a 5xx, a cut connection. It is unknown whether the operation took effect."""

    retriable = True


class ArchiveNotLoaded(StoreUnavailable):
    """The bucket holds the offset, but the partition's manifest has not been read from there yet."""


class StoreThrottled(StoreUnavailable):
    """The store asks for fewer requests (503 SlowDown, 429)."""


class StoreDenied(StoreError):
    """Credentials are missing, wrong, or do not allow this."""


class StoreMisconfigured(StoreError):
    """The store's address is not valid, or the store does not know an option."""


class NoSuchBucket(StoreMisconfigured):
    """The store answers, but it has no such bucket."""


class ObjectMissing(StoreError):
    """The object does not exist. Never raised for an object that exists but cannot be read."""


class CorruptObject(TierlogError):
    """An object's bytes are not what the index or the manifest says they are."""


class CorruptManifest(CorruptObject):
    """A manifest or one of its pages cannot be trusted."""


class ManifestInvalid(TierlogError):
    """A manifest that must not be published: its ranges overlap, leave a hole, or go back."""


class ManifestFenced(TierlogError):
    """A newer leader epoch, or a newer sequence of this epoch, has already published."""


class ArchiveStopped(TierlogError):
    """A partition's archive is not the one that its broker knows.

    Until the bucket is put right or a person decides, nothing of the archive is published, dropped or deleted. A read
    that needs the bucket is refused.
    """


class ManifestWentBack(ArchiveStopped):
    """The newest manifest is older than the one that was published last, or there is no manifest any more."""


class ForeignManifest(ArchiveStopped):
    """Another cluster, or another copy of this data directory, has published."""


class ArchiveNotStopped(TierlogError):
    """A repair was asked for an archive that needs none."""


class RecordsMissing(TierlogError):
    """An archive cannot be repaired without giving up records, and the caller did not allow that."""


class ReplacementRefused(TierlogError):
    """Rewritten segments do not fit the manifest, or are not what their proposal says."""


class KeyMissing(TierlogError):
    """Records are encrypted, and the key that they name is not here."""


class KeyShredded(KeyMissing):
    """The key was destroyed on purpose: nobody can read the records any more."""


class KeyStoreUnavailable(StoreUnavailable):
    """The service that holds a key does not answer."""


class NotEncrypted(CorruptObject):
    """A plain object, or one with a foreign key, where the topic demands encryption: somebody may have put it there."""
