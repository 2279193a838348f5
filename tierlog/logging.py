"""What a broker writes to standard error: one line per event, readable on a terminal, logfmt or JSON elsewhere.

At `info`, the default, it logs its start and stop, topics made and deleted, changes of leadership, and what fails and
works again. It logs nothing that happens with every request or connection.
"""

import logging
import sys
from typing import Any, Literal, TextIO

import orjson
import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

Format = Literal["auto", "console", "logfmt", "json"]


class _Steady:
    """A stream that survives its terminal: a line that cannot be written is lost, without an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return 0

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            pass


def configure_logging(level: str, form: Format = "auto", *, worker: int | None = None) -> None:
    """Libraries that use Python's logging are shown in the same form, but only their warnings and errors. Each line
    names the `worker`, if it is one of several that write to the same stream."""
    steady: Any = _Steady(sys.stderr)
    if form == "auto":
        form = "console" if sys.stderr.isatty() else "logfmt"
    shared: list[Any] = [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    if worker is not None:
        shared.append(lambda logger, name, event: {"worker": worker, **event})
    last: list[Any]
    if form == "console":
        last = [structlog.dev.ConsoleRenderer()]
    elif form == "json":
        last = [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(serializer=_json)]
    else:
        last = [
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(steady),
        processors=[*shared, *last],
    )
    handler = logging.StreamHandler(steady)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[_plain, *last]))
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[handler], force=True)


def _plain(logger: Any, name: str, event: Any) -> Any:
    """Removes what the formatter adds for its own use."""
    event.pop("_record", None)
    event.pop("_from_structlog", None)
    return event


def _json(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
