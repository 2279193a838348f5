"""Consumer groups as pure machines (values and a time in, effects out), and the map of them.

`group`          what every kind of group is to the rest of the coordinator
`classic`        the machine of the classic protocol
`refusals`       what that machine refuses, and why
`states`         the table of states, with its drawing and what each state answers
`messages`       requests, answers, effects and the persisted snapshot
`outbox`         collects a machine's effects
`memory`         counts the memory of members
`initial_delay`  how long an empty group waits for more members
`member`         one member of a group
`roster`         the members, and what follows from the set of them
`subscription`   reads subscribed topics and assigned partitions from the otherwise opaque metadata
`group_map`      the groups of one partition of the offsets topic
"""
