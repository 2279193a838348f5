"""What `__consumer_offsets` holds: docs/formats/consumer-offsets.md. `journal` writes it and reads it back.

`topic`     its name and settings
`buffer`    the primitive types of its keys and values
`keys`      the two kinds of key
`values`    the two kinds of value
`decoding`  groups from the newest value of each key
"""
