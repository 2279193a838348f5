"""How long the first generation of an empty group waits for more members.

Each newcomer prolongs the wait by one more delay, up to the rebalance timeout in total.
"""


class InitialDelay:
    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._left_ms: int | None = None
        """How much longer newcomers may prolong the wait; None if no wait is running."""
        self._newcomer = False

    @property
    def runs(self) -> bool:
        return self._left_ms is not None

    def start(self, rebalance_timeout_ms: int) -> int:
        """Returns how long to wait."""
        self._left_ms = max(rebalance_timeout_ms - self._delay_ms, 0)
        self._newcomer = False
        return self._delay_ms

    def newcomer(self) -> None:
        self._newcomer = True

    def prolong(self) -> int | None:
        """Returns how much longer to wait; None if the wait is over."""
        if not self._left_ms or not self._newcomer:
            self._left_ms = None
            return None
        more_ms = min(self._delay_ms, self._left_ms)
        self._left_ms -= more_ms
        self._newcomer = False
        return more_ms
