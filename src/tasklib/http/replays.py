"""Replays as jobs, over HTTP."""

from __future__ import annotations

from uuid import UUID

from tasklib.client import validation
from tasklib.client.effects import Call
from tasklib.http import responses
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.saved_searches import HttpSavedSearchCalls
from tasklib.http.transport import checked
from tasklib.store.audit import Action
from tasklib.store.filters import DeadLetterFilter, texts
from tasklib.store.replays import Replay

_VERBS = {Action.PAUSE_REPLAY: "pause", Action.RESUME_REPLAY: "resume", Action.STOP_REPLAY: "stop"}


class HttpReplayCalls(HttpSavedSearchCalls):
    """Replays, for operators."""

    def replays(self, *, fingerprint: str | None = None, limit: int = 50) -> Call[list[Replay]]:
        checked(super().replays(fingerprint=fingerprint, limit=limit))
        found = yield from self._ask(get("/replays", query_of(fingerprint=fingerprint, limit=limit)))
        return [responses.replay_of(replay) for replay in found["replays"]]

    def get_replay(self, replay_id: UUID | str) -> Call[Replay]:
        id_ = validation.as_id(replay_id)
        return responses.replay_of((yield from self._ask(get(f"/replays/{id_}", replay_id=id_))))

    def _start(self, chosen: DeadLetterFilter, per_minute: float | None, canary: bool) -> Call[Replay]:
        conditions = {**chosen.given(), "ids": texts(chosen.ids)}
        rate = None if per_minute is None else float(per_minute)
        body = body_of(**conditions, everything=chosen.is_everything, per_minute=rate, canary=canary)
        return responses.replay_of((yield from self._ask(Request("POST", f"{API}/replays", (), body))))

    def _change(self, replay_id: UUID | str, action: Action, per_minute: float | None = None) -> Call[Replay]:
        id_ = validation.as_id(replay_id)
        path = f"{API}/replays/{id_}/{_VERBS[action]}"
        request = Request("POST", path, query_of(per_minute=per_minute), about={"replay_id": id_})
        return responses.replay_of((yield from self._ask(request)))
