"""Other brokers: which broker leads a partition, and requests that are forwarded to it."""
