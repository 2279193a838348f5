"""Consumer groups and their offsets, transactions, and the parts that any coordinator is built on.

`coordinator`     what the rest of the broker asks of groups
`groups`          the group protocol as a pure machine, and the map of groups
`group_members`   runs the machines: answers, timers, what they persist
`group_offsets`   commits, deletions, expiry
`retention`       which offsets have expired
`transactions`    the transaction coordinator, with its own pure machine and journal
`offsets_topic`   what `__consumer_offsets` holds
`journal`         runs a coordinator's machines over an internal topic: loads, writes, follows leadership
`deadlines`       many deadlines that are often postponed
`settings`, `errors`
"""
