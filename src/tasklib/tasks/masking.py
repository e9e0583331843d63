"""Masking of secrets in all that leaves the program: errors, log lines, spans, events, Sentry, pages and commands.

Secret are the values under the mark of `Hidden[...]` and `SecretStr`, and all values that a function seals. Texts quote
them: `raise ValueError(f"no account {iban}")`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tasklib.tasks import registry
from tasklib.tasks.context import running_task
from tasklib.tasks.secrets import SECRET_IN_TEXT, SECRET_MARK, hidden

if TYPE_CHECKING:
    from tasklib.models import Task
    from tasklib.tasks.context import TaskContext
    from tasklib.tasks.function import TaskFunction

MASK = "••••••"
"""What stands for a hidden value."""

_SHORTEST = 4
"""Shorter values occur in too many texts by chance."""
_MOST_SECRETS = 1000
"""Of a task with more, whole texts are hidden: to look for each would take too long."""

Mask: TypeAlias = Callable[[str], str]


def is_mark(key: str) -> bool:
    return key == SECRET_MARK


def secret_values(value: Any, is_secret_name: Callable[[str], bool] = is_mark, inside: bool = False) -> Iterator[str]:
    """The values below names of secrets, as texts would quote them. `inside`: all values."""
    match value:
        case dict():
            for k, v in value.items():
                yield from secret_values(v, is_secret_name, inside or is_secret_name(k))
        case list():
            for item in value:
                yield from secret_values(item, is_secret_name, inside)
        case bool() | None:
            return
        case str() | int() | float() if inside and len(text := str(value)) >= _SHORTEST and text != MASK:
            yield text


def hiding(secrets: Iterable[str]) -> Mask | None:
    """A function that masks these in texts, also as Python and JSON write them; None if there are none."""
    found = set(secrets)
    if not found:
        return None
    if len(found) > _MOST_SECRETS:
        return lambda _: MASK
    forms = {form for secret in found for form in _forms(secret)}
    known = re.compile("|".join(map(_pattern, sorted(forms, key=len, reverse=True))))
    return lambda text: known.sub(MASK, text)


def masked_value(value: Any, mask: Mask) -> Any:
    """A JSON value with every text in it masked, and numbers that are secrets."""
    match value:
        case str():
            return mask(value)
        case dict():
            return {k: masked_value(v, mask) for k, v in value.items()}
        case list() | tuple():
            return [masked_value(item, mask) for item in value]
        case bool() | None:
            return value
        case int() | float():
            return value if (text := str(value)) == (shown := mask(text)) else shown
    return value


def masked_marks(value: Any, mask: Mask | None) -> Any:
    """A stored value for display: secrets masked, and texts that quote them if `mask` knows them."""
    shown = hidden(value)
    return shown if mask is None else masked_value(shown, mask)


def mask_of(function: TaskFunction[Any, Any] | None, arguments: str) -> Mask | None:
    """What hides the secrets of a task with these arguments, as JSON text and opened; None if it has none."""
    sealing = None if function is None else function.sealing
    if sealing is None and SECRET_IN_TEXT not in arguments:
        return None
    values: Mapping[str, Any] = json.loads(arguments)
    sealed = [] if sealing is None else [v for name, v in values.items() if sealing.is_sealed(name)]
    return hiding({*secret_values(values), *secret_values(sealed, inside=True)})


def mask_of_row(task: Task) -> Mask | None:
    """What hides the secrets of a stored task that are marked in its row; None if it has none."""
    return hiding(secret_values([task.kwargs, task.progress, task.result]))


def mask_of_attempt(context: TaskContext) -> Mask | None:
    """What hides the secrets of the attempt that runs there; None if it has none."""
    if context._mask == "unknown":
        context._mask = mask_of(registry.functions.get(context.name), context._arguments)
    return context._mask


def mask_here() -> Mask | None:
    """What hides the secrets of the task that runs here; None outside of one."""
    context = running_task.get(None)
    return None if context is None else mask_of_attempt(context())


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]


def _pattern(secret: str) -> str:
    escaped = re.escape(secret)
    # A number is not looked for inside of longer ones.
    return rf"(?<![\w.]){escaped}(?!\w)" if secret.replace(".", "").isdigit() else escaped
