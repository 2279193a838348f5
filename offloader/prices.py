"""Prices of storage and requests: the settings of `tierlog cost`, with list prices as defaults."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CostSettings:
    storage_gb_month: float = field(
        default=0.023, metadata={"doc": "Price of a GB in the bucket for a month (S3 Standard, us-east-1).", "min": 0}
    )
    put_per_1000: float = field(default=0.005, metadata={"doc": "Price of 1,000 PUT requests.", "min": 0})
    get_per_1000: float = field(default=0.0004, metadata={"doc": "Price of 1,000 GET requests.", "min": 0})
    list_per_1000: float = field(default=0.005, metadata={"doc": "Price of 1,000 LIST requests.", "min": 0})
    nvme_gb_month: float = field(
        default=0.132,
        metadata={
            "doc": "Price of a GB of local NVMe for a month: an i3en instance on demand, per GB of its disks.",
            "min": 0,
        },
    )
    replication: int = field(
        default=3, metadata={"doc": "Copies on local disks that the archive is compared with.", "min": 1}
    )
