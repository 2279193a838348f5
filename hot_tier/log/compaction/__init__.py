"""Key compaction: of each key only the latest record stays.

- `plan`: the rules, and which segments are cleaned and merged
- `compactor`: runs it; `key_table`: the latest offset of each key
- `swap`: puts the new segment in the place of the old ones
"""
