"""What a broker remembers about clients that fetch again and again, so that a request names only what has changed.

- `fetch`: clients, with Kafka's incremental fetch sessions
- `replicas`: followers on other brokers
"""
