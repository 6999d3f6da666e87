"""Logs: an event's name and its fields, rendered by structlog, delivered by the standard library's logging.

The library only emits, to loggers named after its modules; the program that uses it decides what is shown. Without any
set-up, warnings go to stderr (the standard library's last resort). The library's own programs call `setup_logging`.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

ROOT = "agent_infra"
_NONE: dict[str, Any] = {}


class Logger:
    """Writes events: `log.warning("undeclared_type", type="api_response")`. Fields are shown as they are.

    A field's value may be anything with a `repr`; a secret has no place in one.
    """

    __slots__ = ("_fields", "_logger")

    def __init__(self, name: str, fields: dict[str, Any] | None = None) -> None:
        self._logger = logging.getLogger(name)
        self._fields = fields or {}

    def bind(self, **fields: Any) -> Logger:
        """A logger that adds these fields to every event."""
        return Logger(self._logger.name, self._fields | fields)

    def debug(self, event: str, **fields: Any) -> None:
        """For those who look for a fault."""
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """For those who operate it: something worth a line happened."""
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that a person should look at; the work went on."""
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something failed that no caller is told of otherwise. Inside an `except` block the traceback is added."""
        self._emit(logging.ERROR, event, fields)

    def _emit(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            fields = self._fields | fields
            failing = level >= logging.ERROR and sys.exc_info()[0] is not None
            text = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items())])
            extra = {"event_fields": (event, fields)}
            self._logger.log(level, "%s", text, exc_info=failing, stacklevel=3, extra=extra)


def get_logger(name: str) -> Logger:
    """The logger of a module: `get_logger(__name__)`."""
    return Logger(name)


def setup_logging(level: str = "warning") -> None:
    """Write the library's events to stderr: lines for people on a terminal, else one JSON object a line.

    For programs, not for libraries; calling it again replaces level and stream. Standard output stays free for results.
    """
    logger = logging.getLogger(ROOT)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(people=sys.stderr.isatty()))
    handler.name = ROOT
    logger.handlers = [other for other in logger.handlers if other.name != ROOT] + [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def _formatter(*, people: bool) -> logging.Formatter:
    import structlog  # not on top: its import takes longer than those of most layers, and most runs log nothing

    def fields_of(_: Any, __: str, event: Any) -> Any:
        name, fields = getattr(event["_record"], "event_fields", (event["event"], _NONE))
        return fields | event | {"event": name}

    time = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared = [fields_of, structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, time]
    last: list[Any] = [structlog.dev.ConsoleRenderer()]
    if not people:
        last = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=repr),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
    )
