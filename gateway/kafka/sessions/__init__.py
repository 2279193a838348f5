"""What a broker remembers of those who fetch again and again, so that a request names only what has changed.

- `fetch`: clients, by Kafka's incremental fetch sessions
- `replicas`: followers on other brokers
"""
