"""One partition's log on local disk, and all logs of a data directory. Formats: `docs/formats/hot-segment.md`.

- `manager`: all logs of a data directory; `disk`, `settings`: what they share
- `partition_log`: appending, reading, settings of one log
- `log_files`: the files of its directory; `log_sync`: how far they are synced
- `reading`: offset or time → bytes; `segment_reading`: bytes, checked; `damage`: what that found
- `segments`, `segment`, `segment_info`, `index`, `index_files`: where the bytes are
- `flusher`, `flush_job`, `sync_threads`: group commit; `recovery_points`: how far each log was synced
- `recovery`, `scan`: after a stop that was not clean; `damaged_logs`: what was missing then; `state`: after a clean one
- `producers`, `producer_snapshots`: idempotence; `epochs`: leader epochs; `sealed_text`: small text files
- `config`: topic settings; `retention`: which segments go; `compaction`: what stays of those that are compacted
- `names`, `files`, `kernels`: file names, file operations, compiled loops
"""
