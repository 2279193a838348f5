"""Whether something that was sampled over time grows: the Theil–Sen slope, with its confidence.

The median of the slopes between all pairs of samples. Unlike least squares it does not follow single outliers, such as
a garbage collection or a neighbour's burst.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z_95 = 1.96
FLAT_SHARE_PER_HOUR = 0.01
"""Growth below this share of the median in an hour does not matter."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Per hour, with the ends of the interval that holds it with 95 % confidence."""

    per_hour: float
    low: float
    high: float
    median: float

    @property
    def verdict(self) -> str:
        """Returns `grows` if it surely grows, and by more than a little."""
        return "grows" if self.low > 0 and self.per_hour > FLAT_SHARE_PER_HOUR * self.median else "flat"


def theil_sen(hours: Sequence[float], values: Sequence[float]) -> Slope:
    """Returns the slope with Sen's interval: its ranks around the median are taken from the spread of Kendall's
    statistic."""
    assert len(hours) == len(values) >= 2, "a slope takes two samples"
    x, y = np.asarray(hours, float), np.asarray(values, float)
    first, second = np.triu_indices(len(x), 1)
    slopes = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    n = len(x)
    spread = Z_95 * np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, int((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, int((len(slopes) + spread) / 2) + 1)
    return Slope(*(float(value) for value in (np.median(slopes), slopes[low], slopes[high], np.median(y))))
