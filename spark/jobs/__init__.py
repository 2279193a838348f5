"""Jobs over the archive, each a PySpark program with a plain function inside.

    audit       every object against manifests, indexes and checksums
    stats       volume, keys, skew, and how long records wait for the archive
    export      typed columns, as Parquet or into an Iceberg table
    replay      a range, filtered by SQL, into a topic or out to files
    compact     small archived files into large ones
    iceberg     archived files as Iceberg tables, without a copy

A job is a module with `parser()` and `main(argv)`; `command` runs it the same way from `spark-submit`, from
`python -m spark.jobs.<name>` and from `tierlog spark <name>`. Under `spark-submit` this folder is the first that
Python searches, so no module here has the name of another library.
"""
