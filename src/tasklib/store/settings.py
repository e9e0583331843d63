"""Settings of the whole fleet that change at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tasklib.db.query import Query, Rows
from tasklib.store.audit import Action, audited


class Stored(NamedTuple):
    """What the table says; None leaves a setting to each program's configuration."""

    promote_to_medium_after_seconds: float | None
    promote_to_high_after_seconds: float | None


def settings() -> Query[Stored]:
    return Query("settings", {}, _stored, repeatable=True)


def change(changes: Mapping[str, float | None], *, by: str) -> Query[Stored | None]:
    """Store some settings by their names; None gives one back to the configuration. Reads None if nothing changed."""
    medium, high = Stored._fields
    parameters = {
        "medium_after": changes.get(medium),
        "high_after": changes.get(high),
        "change_medium": medium in changes,
        "change_high": high in changes,
    }
    return audited(
        "change_settings",
        parameters,
        lambda rows: Stored(*rows[0]) if rows else None,
        by=by,
        action=Action.CHANGE_SETTINGS,
        details=changes,
        repeatable=True,
    )


def _stored(rows: Rows) -> Stored:
    return Stored(*rows[0]) if rows else Stored(None, None)
