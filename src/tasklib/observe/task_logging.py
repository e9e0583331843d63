"""The logs of a program's own code in a worker: structlog's and the standard library's, each line naming its task."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import structlog

from tasklib.observe.logs import LineWriter, LogLine, brief, harmless, renderer, stamped, write_traceback
from tasklib.tasks.context import log_fields, running_task
from tasklib.tasks.masking import Mask, mask_here, masked_value
from tasklib.tasks.surroundings import finish_children

_EXCEPTIONS = logging.Formatter()
_METHODS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


def configure_worker_logging(*, as_json: bool | None, level: int = logging.INFO) -> None:
    """Let structlog and `logging` write as the worker does, here and in child processes, each where it is untouched.

    `as_json=None` is for a person: lines with colours. Handlers that the program has put on the root logger stay as
    they are, and their records know their task: `%(task_id)s`, `%(task)s`, `%(attempt)s`.
    """
    configure_task_logging(as_json=as_json, level=level)
    _configure_standard_logging(as_json=as_json, level=level)
    finish_children(__name__, lambda: json.dumps([as_json, level]))


def finish(argument: str) -> None:
    """The same in a child process, once it has imported the program's modules."""
    as_json, level = json.loads(argument)
    configure_worker_logging(as_json=as_json, level=level)


def configure_task_logging(*, as_json: bool | None, level: int = logging.INFO) -> None:
    """Let structlog speak the worker's way, unless the program has its own configuration."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=_processors(as_json),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: LineWriter(sys.stderr),
    )


def add_task(_: Any, __: str, line: LogLine) -> LogLine:
    """A processor for structlog: the keys of the task that runs here. For programs with their own configuration."""
    for key, value in _task_fields().items():
        line.setdefault(key, value)
    return line


def mask_secrets(_: Any, __: str, line: LogLine) -> LogLine:
    """A processor for structlog: masks the arguments that the task here hides or seals. After those that add keys."""
    if (mask := mask_here()) is not None:
        for key in line.keys() - _task_fields().keys() - {"exc_info"}:
            line[key] = _masked(line[key], mask)
    return line


class TaskFields(logging.Filter):
    """For handlers of `logging`: gives each record the task that runs here, empty outside of one.

    What the task hides or seals of its arguments is masked in the message and the traceback.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        fields = _task_fields()
        for key in ("task_id", "task", "attempt"):
            if not hasattr(record, key):
                setattr(record, key, fields.get(key, ""))
        if (mask := mask_here()) is not None:
            record.msg, record.args = mask(record.getMessage()), ()
            if record.exc_info:  # formatters take the text if there is one
                record.exc_text = mask(record.exc_text or _EXCEPTIONS.formatException(record.exc_info))
        return True


def _masked(value: Any, mask: Mask) -> Any:
    masked = masked_value(value, mask)
    if masked is not value or value is None or isinstance(value, bool | int | float | str):
        return masked
    text = repr(value)  # as the line would have it
    return value if (shown := mask(text)) == text else shown


def _task_fields() -> dict[str, Any]:
    context = running_task.get(None)
    return {} if context is None else log_fields(context())


def _configure_standard_logging(*, as_json: bool | None, level: int) -> None:
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_StructuredHandler(as_json))
        if root.level == logging.WARNING:  # as it comes
            root.setLevel(max(level, logging.INFO))
        return
    for handler in root.handlers:
        if not any(isinstance(each, TaskFields) for each in handler.filters):
            handler.addFilter(TaskFields())


class _StructuredHandler(logging.Handler):
    """Writes records as structlog's lines are written."""

    def __init__(self, as_json: bool | None) -> None:
        super().__init__()
        self._log: Any = structlog.wrap_logger(
            LineWriter(sys.stderr),
            processors=_processors(as_json),
            wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        ).bind()

    def emit(self, record: logging.LogRecord) -> None:
        method = next((name for least, name in _METHODS if record.levelno >= least), "debug")
        try:
            getattr(self._log, method)(record.getMessage(), logger=record.name, exc_info=record.exc_info or None)
        except Exception:
            self.handleError(record)


def _processors(as_json: bool | None) -> list[Any]:
    processors: list[Any] = [structlog.contextvars.merge_contextvars, add_task]
    if as_json is None:
        stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
        shown = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=0, exception_formatter=write_traceback
        )
        return [*processors, mask_secrets, structlog.processors.add_log_level, stamp, brief, harmless, shown]
    return [*processors, structlog.processors.format_exc_info, mask_secrets, stamped, renderer(as_json)]
