"""Searches that people keep under a name, for all who use the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tasklib.db.query import Query
from tasklib.store.audit import Action, audited

MOST = 200
"""More would be no help on a page."""


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """A search and who saved it last."""

    name: str
    search: str
    saved_by: str
    saved_at: datetime


def saved_searches() -> Query[list[SavedSearch]]:
    """All of them, by name."""
    parameters = {"limit": MOST}
    return Query("saved_search_list", parameters, lambda rows: [SavedSearch(*row) for row in rows], repeatable=True)


def save(name: str, search: str, *, by: str) -> Query[bool]:
    """Reads whether that changed something."""
    parameters, details = {"name": name, "search": search, "most": MOST}, {"search": search}
    return audited(
        "saved_search_save", parameters, bool, by=by, action=Action.SAVE_SEARCH, target=name, details=details
    )


def delete(name: str, *, by: str) -> Query[bool]:
    """Reads whether there was one."""
    return audited("saved_search_delete", {"name": name}, bool, by=by, action=Action.DELETE_SEARCH, target=name)
