"""Consumer groups and their offsets, and what any coordinator stands on.

`coordinator`     what the rest of the broker asks of groups
`groups`          the group protocol as a pure machine, and the map of groups
`membership`      runs the machines: answers, timers, what they persist
`group_offsets`   commits, deletions, expiry
`retention`       which offsets have expired
`offsets_topic`   what `__consumer_offsets` holds
`journal`         runs a coordinator's machines over an internal topic: loads, writes, follows leadership
`deadlines`       many deadlines that keep being put off
`settings`, `errors`
"""
