"""Partitions as the gateway sees them: who leads, what is committed, who waits for it."""
