"""Deliveries to groups over HTTP that fail: counted, and set aside after too many.

`dead_letters`        decides when a record is set aside, and moves the group's offset past it
`dead_letter_topics`  the topics that hold what was set aside
`failed_deliveries`   how often the delivery of a record has failed
"""
