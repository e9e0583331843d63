"""Saved searches, over HTTP."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.client.saved_searches import check_name
from tasklib.http import responses
from tasklib.http.breakers import HttpBreakerCalls
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.store.saved_searches import SavedSearch


class HttpSavedSearchCalls(HttpBreakerCalls):
    """Searches under a name."""

    def saved_searches(self) -> Call[list[SavedSearch]]:
        found = yield from self._ask(get("/searches"))
        return [responses.saved_search_of(saved) for saved in found["searches"]]

    def delete_search(self, name: str) -> Call[bool]:
        check_name(name)
        found = yield from self._ask(Request("DELETE", f"{API}/searches", query_of(name=name)))
        return bool(found["changed"])

    def _store_search(self, name: str, search: str) -> Call[bool]:
        found = yield from self._ask(Request("PUT", f"{API}/searches", (), body_of(name=name, search=search)))
        return bool(found["changed"])
