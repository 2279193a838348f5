"""Other brokers: who leads a partition, and requests that go on to it."""
