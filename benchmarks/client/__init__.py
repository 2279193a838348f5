"""The load generator: `client.c` on the librdkafka that confluent-kafka brings along.

Python makes at most some 500,000 records a second, and would be what is measured; C makes millions.
"""
