"""Every error of the cold tier, named by its cause. `hot_tier.errors` says how errors are made."""

from hot_tier.errors import TierlogError


class StoreError(TierlogError):
    """The object store did not do what it was asked."""


class StoreUnavailable(StoreError):
    """No answer, a 5xx, a cut connection. Whether the operation took effect is unknown."""

    retriable = True


class ArchiveNotLoaded(StoreUnavailable):
    """The offset lies in the bucket, and the partition's manifest has not been read from there yet."""


class StoreThrottled(StoreUnavailable):
    """The store asks for fewer requests (503 SlowDown, 429)."""


class StoreDenied(StoreError):
    """Credentials are missing, wrong, or do not allow this."""


class StoreMisconfigured(StoreError):
    """An address that is not one, an option the store does not know."""


class NoSuchBucket(StoreMisconfigured):
    """The store is there, and the bucket is not."""


class ObjectMissing(StoreError):
    """The object is not there. Never raised for an object that could not be read."""


class CorruptObject(TierlogError):
    """An object's bytes are not what the index or the manifest says they are."""


class CorruptManifest(CorruptObject):
    """A manifest or one of its pages cannot be trusted."""


class ManifestInvalid(TierlogError):
    """A manifest that must not be published: ranges overlap, leave a hole, or go back."""


class ManifestFenced(TierlogError):
    """A newer leader epoch, or a newer sequence of this epoch, has published already."""


class ArchiveStopped(TierlogError):
    """A partition's archive is not the one its broker knows. Nothing of it is published, dropped or deleted, and what
    only the bucket could give is refused, until the bucket is put right or a person decides."""


class ManifestWentBack(ArchiveStopped):
    """The newest manifest is older than the last one that was published, or there is none any more."""


class ForeignManifest(ArchiveStopped):
    """Another cluster, or another copy of this data directory, has published."""


class ArchiveNotStopped(TierlogError):
    """A repair was asked for where there is nothing to repair."""


class RecordsMissing(TierlogError):
    """An archive cannot be repaired without giving up records, and that was not asked for."""


class ReplacementRefused(TierlogError):
    """Rewritten segments do not fit what the manifest holds, or are not what their proposal says."""
