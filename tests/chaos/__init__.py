"""Faults under load, judged by a checker that knows nothing of the service but what clients saw.

- `values.py`: records that say who sent them. `history.py`: what was invoked, answered and read.
- `checker.py`: the invariants, pure. `workload.py`: producers, group consumers and a watermark watcher.
- `faulty_disk.py`: a FUSE file system that loses what was not synced. `failing_sync.c`: fsync that fails on demand.

A failing run prints its seed; `TIERLOG_CHAOS_SEED` runs it again. `TIERLOG_CHAOS_TARGET=kafka` runs the kill
scenarios against Apache Kafka, which checks the checker.
"""
