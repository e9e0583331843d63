"""Replays as jobs: dead letters replayed by the leader, slowly, one first. One implementation for sync and async."""

from __future__ import annotations

from typing import Unpack
from uuid import UUID

from tasklib.client import validation
from tasklib.client.effects import Call
from tasklib.client.filters import DeadLetterConditions, checked_dead_letters
from tasklib.client.identity import OnBehalf
from tasklib.errors import InvalidOption, ReplayNotFound
from tasklib.store import replays
from tasklib.store.audit import Action
from tasklib.store.filters import EVERY_DEAD_LETTER, DeadLetterFilter, texts
from tasklib.store.replays import Replay

MOST_PER_MINUTE = 1_000_000.0
MOST_IDS = 1_000
"""Ids that a replay as a job may name."""


class ReplayCalls(OnBehalf):
    """Begin, watch, pause, resume and stop replays."""

    def start_replay(
        self,
        dead_letter_filter: DeadLetterFilter = EVERY_DEAD_LETTER,
        /,
        *,
        per_minute: float | None = None,
        canary: bool = True,
        everything: bool = False,
        **conditions: Unpack[DeadLetterConditions],
    ) -> Call[Replay]:
        """Replay dead letters in the background: `per_minute` of them, the oldest first; one first, as a canary.

        The others follow when the canary has completed; if it fails, the replay pauses. The leader does the work, so it
        goes on when this program ends. Tasks that fail again are not replayed a second time. Conditions are those of
        `dead_letters`; without any, `everything=True` has to say so. InvalidOption if there is nothing to replay.
        """
        chosen = checked_dead_letters(dead_letter_filter, conditions)
        if chosen.is_everything and not everything:
            raise InvalidOption(
                "start_replay() without a condition would replay every dead letter. "
                "Give ids=, fingerprint=, name=, queue=, error=, since= or until=; or everything=True."
            )
        if len(texts(chosen.ids) or ()) > MOST_IDS:
            raise InvalidOption(f"a replay names at most {MOST_IDS:,} ids; choose by other conditions.")
        _check_rate(per_minute)
        return (yield from self._start(chosen, per_minute, canary))

    def replays(self, *, fingerprint: str | None = None, limit: int = 50) -> Call[list[Replay]]:
        """The replays, the newest first; of one cause, if its fingerprint is given."""
        checked_dead_letters(EVERY_DEAD_LETTER, {"fingerprint": fingerprint})
        validation.check_limit(limit, validation.MAX_PAGE)
        found: list[Replay] = yield replays.replays(limit, fingerprint=fingerprint)
        return found

    def get_replay(self, replay_id: UUID | str) -> Call[Replay]:
        """One replay: its progress, and what became of its tasks. ReplayNotFound."""
        id_ = validation.as_id(replay_id)
        found: list[Replay] = yield replays.replays(1, id_=id_)
        if not found:
            raise ReplayNotFound(id_)
        return found[0]

    def pause_replay(self, replay_id: UUID | str) -> Call[Replay]:
        """Replay no more until `resume_replay`. What was replayed goes on."""
        return (yield from self._change(replay_id, Action.PAUSE_REPLAY))

    def resume_replay(self, replay_id: UUID | str, *, per_minute: float | None = None) -> Call[Replay]:
        """Go on with a replay, perhaps at another rate. If its canary failed, one more task is tried first."""
        _check_rate(per_minute)
        return (yield from self._change(replay_id, Action.RESUME_REPLAY, per_minute))

    def stop_replay(self, replay_id: UUID | str) -> Call[Replay]:
        """End a replay for good. What was replayed goes on, the other dead letters stay."""
        return (yield from self._change(replay_id, Action.STOP_REPLAY))

    def _start(self, chosen: DeadLetterFilter, per_minute: float | None, canary: bool) -> Call[Replay]:
        begun: Replay | None = yield replays.start(chosen, per_minute, canary=canary, by=self.identity.actor)
        if begun is not None:
            return begun
        known: list[Replay] = yield replays.replays(validation.MAX_PAGE)
        wanted = replays.filter_of(replays.stored(chosen))
        for replay in known:
            if replay.is_open and replays.filter_of(replay.conditions) == wanted:
                raise InvalidOption(f"these dead letters are being replayed already: replay {replay.id}.")
        raise InvalidOption("there is nothing to replay: no dead letter meets these conditions.")

    def _change(self, replay_id: UUID | str, action: Action, per_minute: float | None = None) -> Call[Replay]:
        id_ = validation.as_id(replay_id)
        changed: Replay | None = yield replays.change(id_, action, by=self.identity.actor, per_minute=per_minute)
        if changed is not None:
            return changed
        replay = yield from self.get_replay(id_)
        if not replay.is_open:
            raise InvalidOption(f"replay {id_} is {replay.status}; only one that is under way can be changed.")
        return replay


def _check_rate(per_minute: float | None) -> None:
    if per_minute is None:
        return
    if isinstance(per_minute, bool) or not isinstance(per_minute, int | float) or not 0 < per_minute <= MOST_PER_MINUTE:
        raise InvalidOption(f"per_minute must be more than 0 and at most {MOST_PER_MINUTE:,.0f}, not {per_minute!r}.")
