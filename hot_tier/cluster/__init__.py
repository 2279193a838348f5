"""Cluster metadata: the model, the store interface, and its stores."""
