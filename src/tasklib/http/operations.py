"""What operators ask of the fleet, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

from tasklib.client.cursors import cursor
from tasklib.client.effects import Call
from tasklib.client.operations import UNSET, Settings, _Unset
from tasklib.errors import InvalidOption
from tasklib.http import responses
from tasklib.http.dead_letters import HttpDeadLetterCalls
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.transport import checked
from tasklib.store.audit import AuditRecord
from tasklib.store.control import CancelCounts
from tasklib.store.filters import TaskFilter, texts
from tasklib.store.fleet import WorkerInfo
from tasklib.store.pauses import Paused
from tasklib.store.stored_payloads import ErasedCounts
from tasklib.store.tokens import NewToken, TokenInfo, prefix_in


class HttpOperatorCalls(HttpDeadLetterCalls):
    """Workers, pauses, settings, mass cancel, tokens and the audit."""

    def workers(self) -> Call[list[WorkerInfo]]:
        found = yield from self._ask(get("/workers"))
        return [responses.worker_of(worker) for worker in found["workers"]]

    def drain_worker(self, worker_id: str) -> Call[None]:
        checked(super().drain_worker(worker_id))
        path = f"{API}/workers/{quote(worker_id, safe='')}/drain"
        yield from self._ask(Request("POST", path, repeatable=True, about={"worker_id": worker_id}))

    def pause(self, *, queue: str | None = None, name: str | None = None) -> Call[bool]:
        checked(super().pause(queue=queue, name=name))
        found = yield from self._ask(Request("POST", f"{API}/pauses", (), body_of(queue=queue, name=name)))
        return bool(found["changed"])

    def resume(self, *, queue: str | None = None, name: str | None = None) -> Call[bool]:
        checked(super().resume(queue=queue, name=name))
        found = yield from self._ask(Request("DELETE", f"{API}/pauses", query_of(queue=queue, name=name)))
        return bool(found["changed"])

    def pauses(self) -> Call[list[Paused]]:
        found = yield from self._ask(get("/pauses"))
        return [responses.paused_of(paused) for paused in found["pauses"]]

    def settings(self) -> Call[Settings]:
        return _settings((yield from self._ask(get("/settings"))))

    def change_settings(
        self,
        *,
        promote_to_medium_after_seconds: float | _Unset | None = UNSET,
        promote_to_high_after_seconds: float | _Unset | None = UNSET,
    ) -> Call[Settings]:
        given = {
            "promote_to_medium_after_seconds": promote_to_medium_after_seconds,
            "promote_to_high_after_seconds": promote_to_high_after_seconds,
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if not isinstance(value, _Unset)}
        checked(super().change_settings(**changes))
        body = json.dumps(changes)
        return _settings((yield from self._ask(Request("PATCH", f"{API}/settings", (), body, repeatable=True))))

    def _cancel_all(self, chosen: TaskFilter, dry_run: bool) -> Call[CancelCounts]:
        if chosen.state == ():
            return CancelCounts()
        body = body_of(**{**chosen.given(), "ids": texts(chosen.ids)}, everything=chosen.is_everything, dry_run=dry_run)
        found = yield from self._ask(Request("POST", f"{API}/tasks/cancel", (), body))
        return CancelCounts(found["cancelled"], found["asked"])

    def _erase(self, chosen: TaskFilter, dry_run: bool) -> Call[ErasedCounts]:
        if chosen.state == ():
            return ErasedCounts(0, 0)
        body = body_of(**{**chosen.given(), "ids": texts(chosen.ids)}, dry_run=dry_run)
        found = yield from self._ask(Request("POST", f"{API}/tasks/erase", (), body))
        return ErasedCounts(found["erased"], found["left"])

    def create_token(
        self,
        name: str,
        *,
        roles: str | Iterable[str],
        queues: str | Iterable[str] | None = None,
        expires_in: timedelta | float | None = None,
    ) -> Call[NewToken]:
        roles = _listed(roles)
        queues = None if queues is None else _listed(queues)
        checked(super().create_token(name, roles=roles, queues=queues, expires_in=expires_in))
        seconds = expires_in.total_seconds() if isinstance(expires_in, timedelta) else expires_in
        body = body_of(name=name, roles=roles, queues=queues, expires_in_seconds=seconds)
        found = yield from self._ask(Request("POST", f"{API}/tokens", (), body))
        return NewToken(found["token"], responses.token_of(found))

    def tokens(self) -> Call[list[TokenInfo]]:
        found = yield from self._ask(get("/tokens"))
        return [responses.token_of(token) for token in found["tokens"]]

    def revoke_token(self, id_or_prefix: UUID | str) -> Call[TokenInfo]:
        checked(super().revoke_token(id_or_prefix))
        # Never the whole token: addresses are logged on the way.
        text = str(id_or_prefix).strip()
        path = f"{API}/tokens/{prefix_in(text) or UUID(text)}"
        return responses.token_of(
            (yield from self._ask(Request("DELETE", path, repeatable=True, about={"id_or_prefix": id_or_prefix})))
        )

    def audit(
        self,
        *,
        action: str | None = None,
        actor: str | None = None,
        target: str | None = None,
        before: int | AuditRecord | None = None,
        limit: int = 100,
    ) -> Call[list[AuditRecord]]:
        checked(super().audit(action=action, actor=actor, target=target, before=before, limit=limit))
        place = before.id if isinstance(before, AuditRecord) else before
        start = None if place is None else cursor("audit", place)
        query = query_of(action=action, actor=actor, target=target)
        return (yield from self._pages("/audit", "records", query, start, limit, responses.record_of))

    def on_behalf_of(self, identity: Any) -> Any:
        raise InvalidOption("over HTTP, a client acts for the one whose token it has.")


def _settings(found: Mapping[str, Any]) -> Settings:
    return Settings(
        found["promote_to_medium_after_seconds"], found["promote_to_high_after_seconds"], tuple(found["changed"])
    )


def _listed(values: str | Iterable[str]) -> list[str]:
    if isinstance(values, str):
        return [values]
    return list(values) if isinstance(values, Iterable) else values
