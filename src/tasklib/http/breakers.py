"""Circuit breakers, over HTTP."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.http import responses
from tasklib.http.limits import HttpLimitCalls
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.transport import checked
from tasklib.store.breakers import BreakerInfo
from tasklib.tasks.breakers import Breaker


class HttpBreakerCalls(HttpLimitCalls):
    """Circuit breakers, for operators."""

    def breakers(self) -> Call[list[BreakerInfo]]:
        found = yield from self._ask(get("/breakers"))
        return [responses.breaker_of(breaker) for breaker in found["breakers"]]

    def remove_breaker(self, name: str) -> Call[bool]:
        checked(super().remove_breaker(name))
        return (yield from self._change_breaker("DELETE", "", name))

    def reset_breaker(self, name: str) -> Call[bool]:
        checked(super().reset_breaker(name))
        return (yield from self._change_breaker("POST", "/reset", name))

    def open_breaker(self, name: str, seconds: float | None = None) -> Call[bool]:
        checked(super().open_breaker(name, seconds))
        return (yield from self._change_breaker("POST", "/open", name, seconds))

    def close_breaker(self, name: str) -> Call[bool]:
        checked(super().close_breaker(name))
        return (yield from self._change_breaker("POST", "/close", name))

    def _store_breaker(self, name: str, breaker: Breaker) -> Call[bool]:
        body = body_of(name=name, **breaker.stored())
        found = yield from self._ask(Request("PUT", f"{API}/breakers", (), body))
        return bool(found["changed"])

    def _change_breaker(self, method: str, what: str, name: str, seconds: float | None = None) -> Call[bool]:
        query = query_of(name=name, seconds=seconds)
        found = yield from self._ask(Request(method, f"{API}/breakers{what}", query))
        return bool(found["changed"])
