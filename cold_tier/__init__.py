"""What is in the bucket: object stores, Parquet and index, manifests.

Of the hot tier this package imports only `hot_tier.record`, `hot_tier.errors` and `hot_tier.ids`, so that a Spark
executor loads nothing else.
"""
