"""The classic consumer-group protocol as a pure machine: values and a time in, effects out.

`states`        the table of states, with its drawing and what each state answers
`messages`      requests, answers, effects and the persisted snapshot
`member`        one member of a group
`group`         the machine
`subscription`  the one thing read inside a consumer's opaque metadata: its topics
"""
