"""The object-store interface and its implementations."""
