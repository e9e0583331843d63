"""Limits, over HTTP."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.http import responses
from tasklib.http.operations import HttpOperatorCalls
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.transport import checked
from tasklib.store.limits import LimitInfo
from tasklib.tasks.limits import Rule


class HttpLimitCalls(HttpOperatorCalls):
    """Limits, for operators."""

    def limits(self) -> Call[list[LimitInfo]]:
        found = yield from self._ask(get("/limits"))
        return [responses.limit_of(limit) for limit in found["limits"]]

    def remove_limit(self, name: str) -> Call[bool]:
        checked(super().remove_limit(name))
        found = yield from self._ask(Request("DELETE", f"{API}/limits", query_of(name=name)))
        return bool(found["changed"])

    def reset_limit(self, name: str) -> Call[bool]:
        checked(super().reset_limit(name))
        found = yield from self._ask(Request("POST", f"{API}/limits/reset", query_of(name=name)))
        return bool(found["changed"])

    def _store_limit(self, name: str, rule: Rule) -> Call[bool]:
        found = yield from self._ask(Request("PUT", f"{API}/limits", (), body_of(name=name, **rule.stored())))
        return bool(found["changed"])
