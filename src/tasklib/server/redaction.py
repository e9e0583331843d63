"""Masking of secrets wherever a task is shown, in the API and on the dashboard: values under names of secrets.

A mask that is sent back in an edited text stands for the value it hid.

shown = services.redaction.task(task)          # the same task, with its secrets masked
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tasklib.client.search_terms import SearchError, SearchTerm, terms
from tasklib.columns import SEALED_MARK
from tasklib.tasks.masking import MASK, hiding, is_mark, secret_values
from tasklib.tasks.sealing import is_sealed, shown_error

if TYPE_CHECKING:
    from tasklib.models import Task
    from tasklib.store.approvals import OpenApproval
    from tasklib.store.audit import AuditRecord
    from tasklib.store.dashboard import RecentFailure
    from tasklib.store.dead_letters import DeadLetterGroup
    from tasklib.store.failures import FailureCause
    from tasklib.store.replays import Replay
    from tasklib.store.schedules import ScheduleInfo
    from tasklib.store.search import FoundTask

Row = TypeVar("Row", "DeadLetterGroup", "FailureCause", "RecentFailure")

_SEPARATORS = re.compile(r"[\W_]+")
_OF_RUNS = ("args", "kwargs", "tags")
"""What a schedule has of its runs: the rest of it is no secret, however it is called."""
# Each part has a bound: however long the text is, no part of it is scanned twice.
_BEHIND = (
    r"[\w-]{0,40}[\"'\]]{0,3}\s{0,3}(?:=>|[:=])\s{0,3})"
    r"(?:\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?|(?:Bearer|Basic)\s+\S++|[^\s,;&)\]}\"']++)"
)
# For PostgreSQL, which has no possessive quantifiers and doesn't need them.
_BEHIND_IN_SQL = (
    r"""[\w-]{0,40}[]"']{0,3}\s{0,3}(?:=>|[:=])\s{0,3})"""
    r"""(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|(?:Bearer|Basic)\s+\S+|[^]\s,;&)}"']+)"""
)
_PASSWORD_IN_URL_IN_SQL = r"(\m[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,200}:)[^\s/]+(?=@)"
_PASSWORD_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,200}:)[^\s/]{1,500}(?=@)", re.IGNORECASE)


class Redaction:
    """Hides what stands under a name in which one of these words occurs, however it is spelled; without words nothing.

    In texts, such as tracebacks, it hides what follows `name=` or `name:`, passwords in URLs, and what it hides
    elsewhere in the same task.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(filter(None, map(_plain, words)))
        spelled = "|".join(r"[\W_]?".join(map(re.escape, _parts(word))) for word in words if _plain(word))
        self._starts = {_parts(word)[0].casefold() for word in words if _plain(word)}
        self._in_text = re.compile(f"((?:{spelled}){_BEHIND}", re.IGNORECASE) if spelled else None
        spelled = "|".join(r"(?:\W|_)?".join(_parts(word)) for word in words if _plain(word))
        self.pattern = f"((?:{spelled}){_BEHIND_IN_SQL}|{_PASSWORD_IN_URL_IN_SQL}" if spelled else None
        """The same for PostgreSQL: what two groups leave over of a match is masked in texts."""

    def hides(self, key: str) -> bool:
        plain = _plain(key)
        return any(word in plain for word in self._words) or (bool(self._words) and is_mark(key))

    def task(self, task: Task) -> Task:
        """This task as it may be shown. It is changed in place: never store it."""
        _hide_sealed(task)
        if self._in_text is None:
            return task
        texts = self.texts_of(task)
        for name in ("args", "kwargs", "tags", "progress", "result"):
            setattr(task, name, self.masked(getattr(task, name), texts))
        task.error = self.text(task.error, texts)
        if task.history is not None:  # its names are our own, and its `token` is no secret
            task.history = [
                {k: texts(v) if isinstance(v, str) else v for k, v in entry.items()} for entry in task.history
            ]
        return task

    def texts_of(self, task: Task) -> Callable[[str], str]:
        """What to do to a text that speaks of this task, before it is shown."""
        return self.texts_in([task.args, task.kwargs, task.tags, task.progress, task.result])

    def schedule(self, info: ScheduleInfo) -> ScheduleInfo:
        """This schedule as it may be shown."""
        texts = self.texts_in([info.template["kwargs"], info.template["tags"]])
        template = {k: self.masked(v, texts) if k in _OF_RUNS else v for k, v in info.template.items()}
        # What the schedule says and what its runs get are mostly the same: masked once.
        known = {"args": "kwargs", "tags": "tags"}
        spec = {
            k: v if k not in known else template[known[k]] if v == info.template[known[k]] else self.masked(v, texts)
            for k, v in info.spec.items()
        }
        return replace(info, spec=spec, template=template, pause_note=self.text(info.pause_note, texts))

    def restored_schedule(self, edited: Mapping[str, Any], info: ScheduleInfo) -> dict[str, Any]:
        """Fields of a schedule as they came back, with masks replaced by what they hid in this schedule."""
        texts = self.texts_in([info.template["kwargs"], info.template["tags"]])
        return {
            name: self.restored(value, info.spec.get(name), texts) if name in _OF_RUNS else value
            for name, value in edited.items()
        }

    def approval(self, approval: OpenApproval) -> OpenApproval:
        """This approval as it may be shown. A default of its form that has to be masked is left out."""
        texts = self.texts_in(approval.details)
        return replace(
            approval,
            title=self.text(approval.title, texts) or "",
            details=self.masked(approval.details, texts),
            form=self._form(approval.form, texts),
            refused=self.text(approval.refused, texts),
        )

    def errors(self, rows: Iterable[Row]) -> list[Row]:
        """Rows of a list with their errors as they may be shown. What else is hidden in a task, a list can't know."""
        return [replace(row, error=self.text(row.error) or "") for row in rows]

    def found(self, tasks: Iterable[FoundTask]) -> list[FoundTask]:
        """Tasks of a list as they may be shown."""
        shown = []
        for task in tasks:
            texts = self.texts_in(task.kwargs)
            error = self.text(task.error, texts) or ""
            shown.append(replace(task, kwargs=self.masked(task.kwargs, texts), error=error))
        return shown

    def result(self, result: Any, error: str | None, *others: Any) -> tuple[Any, str | None]:
        """A result and an error as they may be shown; `others` are what else the task has, such as its arguments."""
        if self._in_text is not None and is_sealed(result):
            result = MASK
        texts = self.texts_in([result, *others])
        error = shown_error(error, MASK) if self._in_text is not None else error
        return self.masked(result, texts), self.text(error, texts)

    def replay(self, replay: Replay) -> Replay:
        """This replay as it may be shown: a part of an error may have been sought for."""
        return replace(replay, reason=self.text(replay.reason), conditions=self._members(replay.conditions))

    def records(self, records: Iterable[AuditRecord]) -> list[AuditRecord]:
        """Records of the audit as they may be shown: they say which tags, errors and searches were given."""
        return [replace(each, details=self._members(each.details)) for each in records]

    def search(self, search: str) -> str:
        """A search as it may be shown: a mask instead of one that names a masked value."""
        try:
            return MASK if self.hidden_term(search) is not None or self.text(search) != search else search
        except SearchError:
            return MASK

    def _members(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """An object whose own keys are ours, however they are called."""
        texts = self.texts_in(list(value.values()))
        shown = {k: self.masked(v, texts) for k, v in value.items()}
        if isinstance(search := value.get("search"), str):
            shown["search"] = self.search(search)
        return shown

    def masked(self, value: Any, texts: Callable[[str], str] | None = None) -> Any:
        """The value as it may be shown; `texts` is done to every text in it."""
        match value:
            case dict():
                return {k: MASK if self._is_secret(k, v) else self.masked(v, texts) for k, v in value.items()}
            case list():
                return [self.masked(item, texts) for item in value]
            case str() if texts is not None:
                return texts(value)
        return value

    def text(self, text: str | None, texts: Callable[[str], str] | None = None) -> str | None:
        """A text as it may be shown."""
        return text if not text or self._in_text is None else (texts or self._masked_text)(text)

    def hidden_term(self, search: str) -> SearchTerm | None:
        """The first term of a search about an argument or a tag whose value is masked, or a part of it."""
        for term in terms(search):
            qualifier, _, key = term.qualifier.partition(".")
            texts = [f"{key}={value.text}" if key else value.text for value in term.values]
            if qualifier in ("args", "tag") and any(
                self.hides(text.partition("=")[0]) or self.text(text) != text for text in texts
            ):
                return term
        return None

    def restored(self, edited: Any, original: Any, texts: Callable[[str], str] | None = None) -> Any:
        """An edited masked value, with its masks replaced by the original values; `texts` as given to `masked`."""
        match edited, original:
            case dict(), dict():
                return {
                    k: original[k]
                    if v == MASK and k in original and self.hides(k)
                    else self.restored(v, original.get(k), texts)
                    for k, v in edited.items()
                }
            case list(), list():
                # By place: what was added at the end has nothing behind it.
                pairs = zip(edited, [*original, *[None] * len(edited)], strict=False)
                return [self.restored(item, was, texts) for item, was in pairs]
            case str(), str() if texts is not None and edited == texts(original):
                return original
        return edited

    def _form(self, form: Mapping[str, Any] | None, texts: Callable[[str], str]) -> Mapping[str, Any] | None:
        if form is None or "properties" not in form:
            return form
        defaults = {name: part["default"] for name, part in form["properties"].items() if "default" in part}
        shown = self.masked(defaults, texts)
        return {
            **form,
            "properties": {
                name: {key: value for key, value in part.items() if key != "default" or shown[name] == value}
                for name, part in form["properties"].items()
            },
        }

    def _is_secret(self, key: str, value: Any) -> bool:
        return value not in (None, "") and self.hides(key)

    def texts_in(self, value: Any) -> Callable[[str], str]:
        """A function that masks texts: values that are masked among these are masked there, too."""
        known = hiding(secret_values(value, self.hides))
        return self._masked_text if known is None else lambda text: self._masked_text(known(text))

    def _masked_text(self, text: str) -> str:
        if self._in_text is None:
            return text
        # Most long texts have nothing to hide, which is found out at a fiftieth of the cost.
        folded = text.casefold()
        if any(start in folded for start in self._starts):
            text = self._in_text.sub(rf"\g<1>{MASK}", text)
        return _PASSWORD_IN_URL.sub(rf"\g<1>{MASK}", text) if "://" in text else text


def _hide_sealed(task: Task) -> None:
    """Ciphertext reveals nothing, so it need not be masked."""
    if task.key_id is None:
        return
    task.kwargs = {k: MASK if k == SEALED_MARK else v for k, v in task.kwargs.items()}
    task.result = MASK if is_sealed(task.result) else task.result
    task.progress = MASK if is_sealed(task.progress) else task.progress
    task.error = shown_error(task.error, MASK)


def _plain(key: str) -> str:
    return _SEPARATORS.sub("", key).lower()


def _parts(word: str) -> list[str]:
    """The pieces of `api_key`, which may be written with any separator or none."""
    return [part for part in _SEPARATORS.split(word.lower()) if part]
