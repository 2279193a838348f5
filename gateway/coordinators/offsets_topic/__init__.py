"""What `__consumer_offsets` holds: docs/formats/consumer-offsets.md. It is written and read back by `journal`.

`topic`     its name and settings
`buffer`    the primitive types its keys and values are made of
`keys`      the two kinds of key
`values`    the two kinds of value
`decoding`  groups from the newest value of each key
"""
