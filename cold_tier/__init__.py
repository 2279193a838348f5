"""What is in the bucket: object stores, Parquet and index, manifests.

Of the hot tier it uses `hot_tier.record` only, so that a Spark executor loads nothing else.
"""
