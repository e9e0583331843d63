"""Failures by cause as the API and the dashboard show them: secrets masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from tasklib.client.async_clients import AsyncClient
from tasklib.client.failures import MOST_VALUES, FailureReport
from tasklib.server.redaction import Redaction
from tasklib.store.failures import FailureField, FieldValue
from tasklib.tasks.masking import MASK

_MOMENT = "2026-05-21T08:30:00Z"


class _FailurePart(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class FieldValueAnswer(_FailurePart):
    """A value of a tag or an argument, and how many tasks have it."""

    text: str
    tasks: int


class FailureFieldAnswer(_FailurePart):
    """What the tasks of a cause have in a tag or an argument."""

    kind: str = Field(description="`tag` or `argument`.")
    key: str
    values: list[FieldValueAnswer] = Field(description="The most frequent first.")
    different: int = Field(description="How many values there are.")
    tasks: int = Field(description="How many tasks have one.")


class FailureCauseAnswer(_FailurePart):
    """Failed attempts of one name with, but for ids and numbers, one error."""

    fingerprint: str
    name: str
    attempts: int
    tasks: int = Field(description="How many tasks these attempts belong to.")
    dead_letters: int = Field(description="How many tasks it has made dead letters, in the range or before.")
    retrying: int = Field(description="How many tasks wait for a retry after it.")
    first_seen: datetime = Field(description="In the range or before, as far back as the sample goes.")
    last_seen: datetime
    is_new: bool | None = Field(None, description="First seen after the last deploy; null if that can't be told.")
    error: str = Field(description="The last line of the latest error.")
    counts: list[int] = Field(description="Attempts in each of 30 equal steps of the range.")
    task_ids: list[UUID] = Field(validation_alias="ids", description="Its latest tasks in the range.")
    fields: list[FailureFieldAnswer] = Field(default_factory=list, description="For whom: its tags and arguments.")


class FailuresAnswer(BaseModel):
    """Failed attempts of a range by cause, the most frequent first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "since": "2026-05-21T08:15:00Z",
                    "until": _MOMENT,
                    "attempts": 412,
                    "back_to": None,
                    "deployed_at": "2026-05-21T08:20:00Z",
                    "causes": [
                        {
                            "fingerprint": "b1946ac92492d2347c6235b4d2611184",
                            "name": "send_email",
                            "attempts": 412,
                            "tasks": 137,
                            "dead_letters": 12,
                            "retrying": 125,
                            "first_seen": "2026-05-21T08:21:07Z",
                            "last_seen": "2026-05-21T08:29:58Z",
                            "is_new": True,
                            "error": "TimeoutError: smtp.example.com",
                            "counts": [*[0] * 12, *[23] * 17, 21],
                            "task_ids": ["0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f"],
                            "fields": [
                                {
                                    "kind": "tag",
                                    "key": "customer",
                                    "values": [{"text": "acme", "tasks": 130}],
                                    "different": 4,
                                    "tasks": 137,
                                }
                            ],
                        }
                    ],
                }
            ]
        }
    )

    since: datetime
    until: datetime
    attempts: int = Field(description="How many failed attempts of the range were read.")
    back_to: datetime | None = Field(description="The sample ends here; null: all that is stored was read.")
    deployed_at: datetime | None = Field(description="When the first worker of the last deploy joined.")
    causes: list[FailureCauseAnswer]

    @classmethod
    def of(cls, report: FailureReport) -> Self:
        causes = []
        for cause in report.causes:
            answer = FailureCauseAnswer.model_validate(cause)
            answer.is_new = report.is_new(cause)
            found = report.fields.get(cause.fingerprint, [])
            answer.fields = [FailureFieldAnswer.model_validate(field) for field in found]
            causes.append(answer)
        return cls(
            since=report.since,
            until=report.until,
            attempts=report.attempts,
            back_to=report.back_to,
            deployed_at=report.deployed_at,
            causes=causes,
        )


async def shown_failures(
    client: AsyncClient, redaction: Redaction, *, values: int = 3, **options: Any
) -> FailureReport:
    """What failed, as it may be shown: all values are read, so that those of secrets are hidden in other values too."""
    report = await client.failures(values=MOST_VALUES, **options)
    causes, fields = [], {}
    for cause in report.causes:
        found = report.fields.get(cause.fingerprint, [])
        texts = redaction.texts_in({field.key: [value.text for value in field.values] for field in found})
        causes.append(replace(cause, error=redaction.text(cause.error, texts) or ""))
        fields[cause.fingerprint] = [_masked(field, redaction, texts, values) for field in found]
    return replace(report, causes=causes, fields={key: some for key, some in fields.items() if some})


def _masked(field: FailureField, redaction: Redaction, texts: Callable[[str], str], most: int) -> FailureField:
    if redaction.hides(field.key):
        return replace(field, values=(FieldValue(MASK, field.tasks),), different=0)
    return replace(field, values=tuple(replace(value, text=texts(value.text)) for value in field.values[:most]))
