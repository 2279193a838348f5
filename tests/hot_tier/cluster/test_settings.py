"""Settings that cannot work are refused where they are made."""

import pytest

from hot_tier.cluster.settings import ClusterSettings
from hot_tier.errors import SettingsError


@pytest.mark.parametrize(
    "values",
    [
        {"node_id": -1},
        {"num_partitions": 0},
        {"lease_ttl_ms": 0},
        {"max_partitions_per_topic": 0},
        {"num_partitions": 11, "max_partitions_per_topic": 10},
    ],
)
def test_bad_values(values: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=f"cluster.{next(iter(values))}"):
        ClusterSettings(**values)  # type: ignore[arg-type]
