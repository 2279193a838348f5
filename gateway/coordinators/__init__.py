"""Consumer groups and their offsets.

`coordinator`     what the rest of the broker asks of groups
`groups`          the group protocol as a pure machine
`membership`      runs the machines: answers, timers, what they persist
`group_offsets`   commits, deletions, expiry
`retention`       which offsets have expired
`shards`          which groups are served here; loads and unloads them
`shard`           the groups of one partition of the offsets topic
`offsets_topic`   the format of `__consumer_offsets`, writing and reading it back
`deadlines`       many deadlines that keep being put off
`settings`, `errors`
"""
