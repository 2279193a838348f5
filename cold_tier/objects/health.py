"""Whether a bucket answers: since when it does not, why, and one line in the log for each change.

Every attempt of a `Bucket` is reported to its `StoreHealth`, so this costs no requests. A failure that a second
attempt mends is not logged: a line is written once the bucket has failed for a few seconds.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from cold_tier.errors import StoreError, StoreUnavailable
from hot_tier.clock import wall_ms

_log = structlog.get_logger()

_TELL_AFTER_MS = 3_000


class StoreHealth:
    def __init__(self, url: str, clock: Callable[[], int] = wall_ms) -> None:
        self._url = url
        self._clock = clock
        self._told = False
        self.failing_since_ms: int | None = None
        """None if the last attempt was answered."""
        self.reason = ""

    def failed(self, error: StoreError) -> None:
        now_ms = self._clock()
        if self.failing_since_ms is None:
            self.failing_since_ms = now_ms
        self.reason = error.what
        lasting = not error.retriable or now_ms - self.failing_since_ms >= _TELL_AFTER_MS
        if lasting and not self._told:
            self._told = True
            _log.warning("the bucket fails", bucket=self._url, error=error.what, hint=error.hint, since=self._time())

    def answered(self) -> None:
        if self._told:
            self._told = False
            _log.info("the bucket works again", bucket=self._url, failed_since=self._time())
        self.failing_since_ms = None

    @property
    def words(self) -> str:
        """Returns since when the bucket fails and why, or an empty text if it works."""
        return "" if self.failing_since_ms is None else f"the bucket fails since {self._time()}: {self.reason}"

    def since(self, error: StoreUnavailable) -> StoreUnavailable:
        """Returns the error of an operation that was given up, with the time since which none has succeeded."""
        return type(error)(self.words or error.what, where=error.where, hint=error.hint)

    def _time(self) -> str:
        assert self.failing_since_ms is not None
        return datetime.fromtimestamp(self.failing_since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
