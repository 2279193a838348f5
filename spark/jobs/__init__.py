"""Jobs over the archive, each a PySpark program around a plain function.

    audit       checks every object against manifests, indexes and checksums
    stats       volume, keys, skew, and how long records wait for the archive
    export      typed columns, as Parquet or into an Iceberg table
    replay      copies a range, filtered by SQL, into a topic or to files
    compact     merges small archived files into large ones
    iceberg     archived files as Iceberg tables, without a copy

A job is a module with `parser()` and `main(argv)`. `command` runs it in the same way from `tierlog spark <name>`, from
`python -m spark.jobs.<name>` and, on a cluster, from a program of two lines that `spark-submit` starts
(docs/SPARK_JOBS.md).
"""
