"""The calls about saved searches, for sync and async callers."""

from __future__ import annotations

from datetime import UTC, datetime

from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.client.search_language import parse
from tasklib.errors import InvalidOption
from tasklib.store import saved_searches
from tasklib.store.saved_searches import MOST, SavedSearch
from tasklib.tasks.options import is_storable

LONGEST_NAME = 100


class SavedSearchCalls(OnBehalf):
    """Searches under a name, shared by all who use the database."""

    def saved_searches(self) -> Call[list[SavedSearch]]:
        """All saved searches, by name."""
        found: list[SavedSearch] = yield saved_searches.saved_searches()
        return found

    def save_search(self, name: str, search: str) -> Call[bool]:
        """Save a search under a name, in place of the one it had: `save_search("late mail", "queue:mail due:<0s")`.

        Returns False if it was saved so before. A search that can't be parsed raises SearchError.
        """
        check_name(name)
        parse(search, self.config, datetime.now(UTC))
        if (yield from self._store_search(name, search)):
            return True
        if any(saved.name == name for saved in (yield from self.saved_searches())):
            return False
        raise InvalidOption(f"there are {MOST} saved searches already: delete one first.")

    def delete_search(self, name: str) -> Call[bool]:
        """Delete a saved search. False if there was none."""
        check_name(name)
        changed: bool = yield saved_searches.delete(name, by=self.identity.actor)
        return changed

    def _store_search(self, name: str, search: str) -> Call[bool]:
        changed: bool = yield saved_searches.save(name, search, by=self.identity.actor)
        return changed


def check_name(name: str) -> None:
    """Refuse what is no name of a saved search."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not is_storable(name):
        raise InvalidOption(f"the name of a saved search has 1 to {LONGEST_NAME} characters.")
