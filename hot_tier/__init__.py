"""What is on local disk: records, segments, replication, cluster metadata. It imports no other tier.

- `record`: the RecordBatch v2 codec and its compiled kernels
- `log`: segments, indexes, recovery, retention, compaction
- `replication`: partitions and their high watermarks
- `cluster`: the metadata model and the stores that hold it
"""
