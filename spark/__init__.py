"""PySpark over the archive: a reader that follows the manifests, a stream source, and jobs.

    source      `tierlog_read` and `spark.read.format("tierlog")`
    streaming   the same as a stream
    session     a Spark session with what a bucket needs
    options     what a reader may ask for, by the names of Spark's Kafka source
    plan        which archived segments, and which offsets of the hot tail, answer it
    pieces      what one task reads, and how
    gateway     the hot tail over HTTP
    jobs        audit, stats, export, replay, compact, iceberg

Imports of `cold_tier` and `hot_tier` only: an executor loads no part of the service.
"""
