"""Settings of everything the logs of one data directory share. A topic's own settings are in `config`."""

from dataclasses import dataclass, field

from hot_tier.errors import SettingsError


@dataclass(frozen=True, slots=True)
class LogSettings:
    data_dir: str = field(default="data", metadata={"doc": "Directory that holds the logs; made if it is missing."})
    max_open_files: int = field(
        default=1024,
        metadata={"doc": "At most about this many log files are kept open; the least recently used are closed."},
    )
    # 4 KiB appended to many files on ext4: 4 threads 3,600 syncs/s, 8 threads 7,300, 16 threads 8,400.
    flush_threads: int = field(
        default=8,
        metadata={"doc": "Threads that sync logs to the disk for flush=commit; each serves one log at a time."},
    )
    recovery_threads: int = field(
        default=2,
        metadata={"doc": "Threads that check logs after an unclean stop, before the node is ready."},
    )
    min_free_bytes: int = field(
        default=1 << 30,
        metadata={"doc": "Writes are refused while the disk has less room than this; reads and deletion go on."},
    )
    free_check_ms: int = field(default=1_000, metadata={"doc": "How often the free room on the disk is looked at."})
    retention_check_ms: int = field(
        default=5_000, metadata={"doc": "How often segments are rolled by age and retention is applied."}
    )
    compaction_check_ms: int = field(
        default=15_000, metadata={"doc": "How often a log that needs compaction is looked for."}
    )
    compaction_buffer_bytes: int = field(
        default=64 << 20,
        metadata={"doc": "Memory for the offsets of keys while a log is compacted; more keys take more passes."},
    )
    checkpoint_ms: int = field(
        default=30_000,
        metadata={"doc": "How often recovery points are saved; they bound what is checked after an unclean stop."},
    )
    producer_id_expiration_ms: int = field(
        default=86_400_000,
        metadata={"doc": "A producer that wrote nothing for this long is forgotten, and with it its duplicates."},
    )
    idempotency_key_window_ms: int = field(
        default=300_000,
        metadata={"doc": "How long the `Idempotency-Key` of a message posted over HTTP is remembered."},
    )

    def __post_init__(self) -> None:
        if not self.data_dir.strip():
            raise SettingsError("data_dir cannot be empty", hint="name a directory, or leave it out for ./data")
