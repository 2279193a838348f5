"""Which objects hold a partition: immutable, epoch-numbered snapshots."""
