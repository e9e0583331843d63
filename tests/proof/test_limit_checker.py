"""The checker of limits flags each violation of I10, I16, I17 and I18, and is content with a history in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from proof.history.checker import Checker, End
from proof.history.limits import (
    Bound,
    BreakerMove,
    LimitBlock,
    LimitChange,
    LimitedMove,
    LimitedTask,
    LimitFigures,
    LimitHistory,
    check,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
API = Bound("api", "ann")
TWO = LimitChange(0, "api", 2, None, None, None)


class Story:
    """Moves of tasks, one after the other; transactions have the numbers of their moves."""

    def __init__(self, *changes: LimitChange) -> None:
        self.tasks: list[LimitedTask] = []
        self.moves: list[LimitedMove] = []
        self.changes = list(changes)
        self.blocks: list[LimitBlock] = []
        self.breakers: list[BreakerMove] = []
        self.places_left = 0
        self._states: dict[str, str | None] = {}
        self._seq = 0

    def new(self, *ids: str, serial: str | None = None, bounds: tuple[Bound, ...] = (API,), xid: int = 0) -> Story:
        for id_ in ids:
            due = NOW + timedelta(seconds=len(self.tasks))
            self.tasks.append(LimitedTask(id_, () if serial else bounds, serial, due, "pay"))
            self.to("pending", id_, xid=xid)
        return self

    def to(self, state: str, *ids: str, at: float = 0.0, xid: int = 0) -> Story:
        for id_ in ids:
            self._seq += 1
            began = NOW + timedelta(seconds=at)
            own = xid or self._seq
            self.moves.append(LimitedMove(self._seq, id_, self._states.get(id_), state, began, own, own))
            self._states[id_] = state
        return self

    def set(self, most: int | None) -> Story:
        self._seq += 1
        self.changes.append(LimitChange(self._seq, "api", most, None, None, None))
        return self

    def hold(self, bound: Bound, until: float) -> Story:
        self._seq += 1
        self.blocks.append(LimitBlock(self._seq, bound, NOW + timedelta(seconds=until)))
        return self

    def breaker(self, state: str, *probes: str, at: float) -> Story:
        self._seq += 1
        self.breakers.append(BreakerMove(self._seq, NOW + timedelta(seconds=at), "pay", state, probes))
        return self

    def found(self) -> list[str]:
        history = LimitHistory(self.tasks, self.moves, self.changes, self.blocks, self.breakers, self.places_left)
        return [invariant for invariant, _ in check(history, LimitFigures())]


def test_as_many_as_allowed_may_run_at_a_time() -> None:
    story = Story(TWO).new("a", "b", "c").to("running", "a", "b").to("completed", "a").to("running", "c")
    assert story.found() == []


def test_one_more_than_allowed_is_a_violation() -> None:
    assert Story(TWO).new("a", "b", "c").to("running", "a", "b", "c").found() == ["I10"]


def test_each_key_has_places_of_its_own() -> None:
    story = Story(TWO).new("a", "b").new("c", bounds=(Bound("api", "bob"),)).to("running", "a", "b", "c")
    assert story.found() == []


def test_what_begins_is_judged_by_the_limit_of_that_moment() -> None:
    assert Story(TWO).new("a", "b", "c").to("running", "a", "b").set(1).to("completed", "a").found() == []
    assert Story(TWO).new("a", "b", "c").to("running", "a").set(1).to("running", "b").found() == ["I10"]
    assert Story(TWO).new("a", "b", "c").set(None).to("running", "a", "b", "c").found() == []


def test_places_that_nothing_holds_at_the_end_are_a_violation() -> None:
    story = Story(TWO)
    story.places_left = 1
    assert story.found() == ["I10"]


def test_starts_are_within_burst_and_rate_in_every_window() -> None:
    rate = LimitChange(0, "api", None, 1.0, 1.0, 2)
    story = Story(rate).new("a", "b", "c", "d").to("running", "a", "b", at=10).to("running", "c", at=11)
    assert story.found() == []
    assert story.to("running", "d", at=11.9).found() == ["I16"]


def test_a_serial_key_in_order_has_no_violation() -> None:
    story = Story().new("a", "b", "c", serial="ann").to("running", "a").to("failed", "a").to("running", "a")
    story.to("completed", "a").to("running", "b").to("cancelled", "b").to("running", "c")
    assert story.found() == []


def test_two_of_a_serial_key_at_a_time_are_a_violation() -> None:
    assert "I17" in Story().new("a", "b", serial="ann").to("running", "a", "b").found()
    assert Story().new("a", serial="ann").new("b", serial="bob").to("running", "a", "b").found() == []


def test_overtaking_a_task_that_waits_for_its_retry_is_a_violation() -> None:
    story = Story().new("a", "b", serial="ann").to("running", "a").to("failed", "a").to("running", "b")
    assert story.found() == ["I17"]


def test_beginning_before_a_task_that_comes_first_is_a_violation() -> None:
    assert Story().new("a", "b", serial="ann").to("running", "b").found() == ["I17"]
    assert Story().new("a", "b", serial="ann", xid=7).to("running", "b").found() == ["I17"]


def test_a_task_that_may_have_been_committed_late_need_not_come_first() -> None:
    story = Story().new("a", serial="ann", xid=9).new("b", serial="ann", xid=5).to("running", "b")
    assert story.found() == []


def test_the_verdict_of_a_run_includes_limits() -> None:
    story = Story(TWO).new("a", "b", "c").to("running", "a", "b", "c")
    end = End(limits=LimitHistory(story.tasks, story.moves, story.changes))
    verdict = Checker(crash_limit=3).check([], [], [], end)
    assert verdict.counts == {"I10": 1}
    assert verdict.figures.limits.bounded_starts == 3


def test_nothing_begins_behind_a_limit_that_is_held() -> None:
    story = Story().new("a", "b").hold(API, until=10).to("running", "a", at=10)
    assert story.found() == []
    assert story.to("running", "b", at=9.9).found() == ["I16"]


def test_a_limit_is_held_for_one_key_and_only_from_then_on() -> None:
    story = Story().new("a", "b").to("running", "a", at=1).hold(Bound("api", "bob"), until=10)
    assert story.to("running", "b", at=2).found() == []


def test_while_a_breaker_is_open_nothing_of_its_name_begins_and_then_only_its_probes() -> None:
    story = Story().new("a", "b", "c", bounds=()).breaker("closed", at=0).to("running", "a", at=1)
    story.breaker("open", at=10).to("pending", "a").to("running", "a", at=14.9)
    assert story.found() == [], "the claim may have begun before"
    story.breaker("probing", "b", at=20).to("running", "b", at=21)
    assert story.found() == []
    assert story.to("running", "c", at=25.1).found() == ["I18"]


def test_nothing_begins_while_a_breaker_is_open_and_all_does_once_it_is_closed() -> None:
    story = Story().new("a", "b", bounds=()).breaker("open", at=0)
    assert story.breaker("open", at=9).to("running", "a", at=6).found() == ["I18"]
    assert story.breaker("closed", at=20).to("running", "b", at=21).found() == ["I18"], "still that of the first"
