"""Other people's clients, unmodified, against a running broker.

The suite runs against tierlog. To check the suite itself, run it against Apache Kafka
(`TIERLOG_COMPAT_TARGET=kafka`) or against any broker (`TIERLOG_COMPAT_BOOTSTRAP=host:port`).
"""
