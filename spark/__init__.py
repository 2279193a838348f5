"""PySpark over the archive: a reader that follows the manifests, a stream source, and jobs.

    source      `read` and `spark.read.format("tierlog")`
    streaming   the same as a stream
    session     a Spark session with what a bucket needs
    options     the options of a read, with the names of Spark's Kafka source
    plan        the archived segments and the offsets of the hot tail that a read needs
    read_tasks  what one task reads, and how
    gateway     the hot tail over HTTP
    jobs        audit, stats, export, replay, compact, iceberg

This package imports only `cold_tier` and `hot_tier`, so an executor loads no part of the service. Programs import
`tierlog.spark`, both in a checkout and with the wheel.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark.source import register
    from spark.source import tierlog_read as read

__all__ = ["read", "register"]


def __getattr__(name: str) -> Any:
    """Loads the reader on first use, because an executor that unpickles a task of `spark.jobs` does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from spark import source
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise ImportError("PySpark is not installed: pip install 'tierlog[spark]'", name="pyspark") from None
    return source.tierlog_read if name == "read" else source.register
