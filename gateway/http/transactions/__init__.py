"""Transactions of services that speak HTTP.

`sessions`   the open transactions of this broker: begin, end, and what a service has said already
`session`    one transaction: its posts, one after the other
`writes`     writes a session's batches and offsets to whoever leads them, until they are committed
"""
