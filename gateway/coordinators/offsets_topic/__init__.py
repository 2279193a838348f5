"""What `__consumer_offsets` holds, how it is written and read back: docs/formats/consumer-offsets.md.

`partitioning`  which of its partitions a group belongs to
`buffer`        the primitive types its keys and values are made of
`keys`          the two kinds of key
`values`        the two kinds of value
`writer`        appends records, many at a time
`loader`        reads a partition back
"""
