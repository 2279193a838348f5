"""A journal: the state of a coordinator, kept as records of an internal compacted topic.

Each partition of the topic holds a part of the state. The broker that leads a partition runs a machine over its
records. The next leader reads the records back and goes on. Consumer groups stand on a journal, `__consumer_offsets`.
Another kind of state brings its own topic, decoder and machine; nothing here knows what they mean.

`journal`       which machines run here: starts, loads and ends them as leadership changes
`shard`         one partition in one leader epoch, with its machine
`topic`         the topic: its settings, and making it when it is first needed
`partitioning`  which partition a key belongs to
`replay`        reads the newest value of each key from a partition
`writer`        appends records, and says when they are committed
"""
