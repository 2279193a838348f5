"""PySpark over the archive: a reader that follows the manifests, a stream source, and jobs.

    source      `read` and `spark.read.format("tierlog")`
    streaming   the same as a stream
    session     a Spark session with what a bucket needs
    options     what a reader may ask for, by the names of Spark's Kafka source
    plan        which archived segments, and which offsets of the hot tail, answer it
    read_tasks  what one task reads, and how
    gateway     the hot tail over HTTP
    jobs        audit, stats, export, replay, compact, iceberg

Imports of `cold_tier` and `hot_tier` only: an executor loads no part of the service. Programs say `tierlog.spark`, in a
checkout as with the wheel.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark.source import register
    from spark.source import tierlog_read as read

__all__ = ["read", "register"]


def __getattr__(name: str) -> Any:
    """Loads the reader when it is asked for: an executor that unpickles a task of `spark.jobs` does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spark import source

    return source.tierlog_read if name == "read" else source.register
