"""Transactions: who produces under a transactional id, and whether what it wrote counts.

`coordinator`      what the rest of the broker asks of transactions
`transaction`      one transactional id as a pure machine: what each request changes, or why it is refused
`states`           the table of states, with its drawing
`transaction_map`  the transactional ids of one partition of the journal
`markers`          writes the markers that end a transaction, here and through other brokers, until all are committed
`topic`, `keys`, `values`, `decoding`  what `__transaction_state` holds, in Kafka's format
"""
