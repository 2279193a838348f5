"""One script of requests against Apache Kafka and against tierlog: every API, every version both serve, good and bad.

`session` sends and records, `plain` leaves out what no two brokers share, the modules of `script` ask, `argued` lists
the differences that are meant. Any other difference fails `test_differential`.

To see all of them: `python -m tests.compat.differential`.
"""
