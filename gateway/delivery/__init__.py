"""Failed deliveries to groups over HTTP: they are counted, and a record that fails too often is set aside.

`dead_letters`        decides when a record is set aside, and moves the group's offset past it
`dead_letter_topics`  the topics that hold the records set aside
`failed_deliveries`   how often the delivery of a record has failed
"""
