"""Messages on stderr: one clear line for an error, without a traceback and without a secret."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from tasklib.errors import TaskFailed, TaskLibError
from tasklib.observe.formatting import printable

_SECRETS = (
    (re.compile(r"(\b[a-z][a-z0-9+]*://[^\s:/@]*):[^\s/]*@"), r"\1:***@"),
    (re.compile(r"(\bpassword\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s'&]+)", re.IGNORECASE), r"\1***"),
    (re.compile(r"\b(tasklib_[0-9a-f]{12})_[A-Za-z0-9_-]{43}"), r"\1_***"),
)


class CommandError(TaskLibError):
    """A command can't be carried out. `detail` is shown above the line."""

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


def stderr() -> Console:
    """The console for people; made when needed, as tests and shells may replace sys.stderr."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def note(text: str, style: str = "") -> None:
    """Say something that is not the command's result."""
    stderr().print(Text(printable(text), style))


def without_secrets(text: str) -> str:
    """The text without the password of any connection string in it, and without the secret of any token."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def show_error(error: BaseException) -> bool:
    """Print an error the user can do something about; False if it is not of that kind."""
    known = next(filter(None, map(_explained, _leaves(error))), None)
    if known is None:
        return False
    line, detail = known
    if detail:
        sys.stderr.write(printable(without_secrets(detail), lines=True).rstrip() + "\n\n")
    stderr().print(Text("error: ", "bold red").append(printable(without_secrets(line)), "red"))
    return True


def _explained(error: BaseException) -> tuple[str, str] | None:
    import psycopg
    from sqlalchemy.exc import DBAPIError

    from tasklib.embedded import EmbeddedPostgresError

    match error:
        case CommandError():
            return str(error), error.detail
        case TaskFailed():
            return f"task {error.name} ({error.task_id}) failed for good.", error.remote_traceback or ""
        case TaskLibError() | EmbeddedPostgresError():
            return str(error), ""
        case DBAPIError() if error.orig is not None:
            return _explained(error.orig)
        case psycopg.Error():
            return f"PostgreSQL says: {error.diag.message_primary or ' '.join(str(error).split())}", ""
    return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
