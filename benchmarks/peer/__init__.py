"""Apache Kafka as the peer: the broker that tierlog is compared with, and the tools that must work on both.

`jars.py` gets the jars, `kafka.py` runs the broker, `tools.py` runs the command-line tools.
"""
