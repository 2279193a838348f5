"""The audit: who did what, from where, with which result, as records of the topic `__audit`.

`kinds`      which kind of act each Kafka API and each HTTP operation is
`events`     one event, and its JSON in the form of OCSF (docs/formats/audit.md)
`trail`      one connection: whose acts these are, and counts of acts that are told once per interval
`audit`      all of them: which events are kept, the bounded queue, what happens when it is full
`refusals`   which refusals are told one by one, and which are counted
`writer`     the task that appends the queue to the topic
`settings`   the section `audit`

What is noted costs the sender no wait: an event is put into the queue, and the task encodes and writes it. Nothing of a
record, no password and no token ever gets here: callers hand over names and codes only.
"""
