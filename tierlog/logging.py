"""What a broker writes to standard error: one line per event, for people on a terminal, logfmt elsewhere."""

import logging
import sys

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logging(level: str) -> None:
    logging.basicConfig(level=LEVELS[level], stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    terminal = sys.stderr.isatty()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if terminal else [structlog.processors.format_exc_info]),
            structlog.dev.ConsoleRenderer()
            if terminal
            else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        cache_logger_on_first_use=True,
    )
