"""Immutable snapshots, numbered by leader epoch, that say which objects hold a partition."""
