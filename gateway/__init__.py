"""How the outside reaches us.

- `kafka`: the Kafka wire protocol
- `http`: the HTTP API, metrics, health
- `fetch`: one read over all tiers
- `coordinators`: consumer groups
"""
