"""Limits, and bounds of queues and names, over HTTP."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.http import responses
from tasklib.http.operations import HttpOperatorCalls
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.transport import checked
from tasklib.store.backpressure import NameBound, QueueBound
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

    def queue_bounds(self) -> Call[list[QueueBound]]:
        found = yield from self._ask(get("/bounds"))
        return [responses.queue_bound_of(bound) for bound in found["queues"]]

    def name_bounds(self) -> Call[list[NameBound]]:
        found = yield from self._ask(get("/bounds"))
        return [responses.name_bound_of(bound) for bound in found["names"]]

    def _store_bounds(self, subject: str, max_wait: float | None, max_pending: int | None) -> Call[bool]:
        kind, _, value = subject.partition(":")
        if max_wait is None and max_pending is None:
            request = Request("DELETE", f"{API}/bounds", query_of(**{kind: value}))
        else:
            body = body_of(**{kind: value, "max_wait": max_wait, "max_pending": max_pending})
            request = Request("PUT", f"{API}/bounds", (), body)
        found = yield from self._ask(request)
        return bool(found["changed"])

    def _store_limit(self, name: str, rule: Rule) -> Call[bool]:
        found = yield from self._ask(Request("PUT", f"{API}/limits", (), body_of(name=name, **rule.stored())))
        return bool(found["changed"])
