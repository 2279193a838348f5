"""A journal: the state of a coordinator, kept as records of an internal compacted topic.

Each partition of the topic holds a part of the state. The broker that leads a partition runs a machine over its
records. The next leader reads the records back and continues. Consumer groups use the journal `__consumer_offsets`.
Another kind of state brings its own topic, decoder and machine; this package does not know what they mean.

`journal`       which machines run here: starts, loads and ends them as leadership changes
`shard`         one partition in one leader epoch, with its machine
`topic`         the topic: its settings, and making it when it is first needed
`partitioning`  which partition a key belongs to
`replay`        reads the newest value of each key from a partition
`writer`        appends records, and reports when they are committed
"""
