"""The load generator: `client.c`, built on the librdkafka that comes with confluent-kafka.

Python makes at most some 500,000 records a second, so a benchmark would measure Python; C makes millions.
"""
