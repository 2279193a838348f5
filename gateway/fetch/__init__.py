"""One read over all tiers, for the Kafka protocol and for HTTP."""
