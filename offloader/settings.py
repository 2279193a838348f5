"""Settings of the offloader. Per topic, Kafka's names apply: `remote.storage.enable`, `local.retention.ms`, …"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    check_ms: int = field(
        default=5_000, metadata={"doc": "How often sealed segments, retention and garbage are looked for."}
    )
    workers: int = field(default=1, metadata={"doc": "Worker processes that convert and upload, at low priority."})
    bytes_per_second: int = field(
        default=0, metadata={"doc": "Limit on the bytes of local segments archived per second and worker; 0: no limit."}
    )
    zstd_level: int = field(
        default=3,
        metadata={"doc": "zstd level of archived rows: 9 saves a tenth of the bytes at five times the CPU.", "min": 1},
    )
    delete_grace_ms: int = field(
        default=600_000,
        metadata={"doc": "How long an object stays after it left the manifest, so that readers in flight can finish."},
    )
    orphan_age_ms: int = field(
        default=24 * 3600 * 1000,
        metadata={"doc": "Objects that no manifest names are collected once they are this old."},
    )
    garbage_check_ms: int = field(default=3600 * 1000, metadata={"doc": "How often orphans are looked for."})
    manifest_history_ms: int = field(
        default=24 * 3600 * 1000,
        metadata={"doc": "How long superseded manifests stay, for readers that began with them."},
    )
