"""PySpark over the archive: data source and jobs."""
