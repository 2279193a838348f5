"""The classic consumer-group protocol as a pure machine: values and a time in, effects out.

`states`        the table of states, with its drawing and what each state answers
`messages`      requests, answers, effects and the persisted snapshot
`member`        one member of a group
`group`         the machine
`roster`        the members, and what follows from the set of them
`subscription`  the little that is read of consumers' otherwise opaque metadata
"""
