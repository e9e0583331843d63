"""Celery's canvas on flows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tasklib.celery import chain, chord, chunks, group, signature, xmap, xstarmap
from tasklib.celery.exceptions import IncompleteStream, NotOnTaskLib
from tasklib.testing import drain_sync


def ran(result: Any) -> Any:
    drain_sync(until_done=True, concurrency=4)
    return result.get(timeout=120)


def test_a_chain_hands_results_on_as_the_first_argument(proj: Any) -> None:
    result = chain(proj.add.s(4, 4), proj.mul.s(8), proj.mul.s(10))()
    assert ran(result) == 640
    assert (result.parent.get(timeout=120), result.parent.parent.get(timeout=120)) == (64, 8)
    assert ran((proj.add.s(2, 2) | proj.add.s(4))()) == 8


def test_a_chain_is_one_flow_in_the_database(proj: Any, db: psycopg.Connection) -> None:
    chain(proj.add.s(4, 4), proj.mul.s(8))()
    assert db.execute("SELECT count(DISTINCT flow), count(*) FROM tasks").fetchone() == (1, 2)


def test_an_immutable_signature_takes_nothing_from_the_task_before(proj: Any) -> None:
    assert ran((proj.add.si(2, 2) | proj.add.si(4, 4))()) == 8


def test_a_group_gives_a_list_and_a_chord_joins_it(proj: Any) -> None:
    result = group(proj.add.s(i, i) for i in range(5))()
    assert ran(result) == [0, 2, 4, 6, 8]
    assert (len(result), result.successful(), result.completed_count()) == (5, True, 5)
    assert ran(chord((proj.add.s(i, i) for i in range(5)), proj.xsum.s())()) == 20
    assert ran(chord([proj.add.s(2, 2)])(proj.xsum.s())) == 4
    assert ran((group(proj.add.s(i, i) for i in range(3)) | proj.xsum.s() | proj.mul.s(2))()) == 12


def test_partial_arguments_go_to_each_task_of_a_group(proj: Any) -> None:
    assert ran(group(proj.add.s(i) for i in range(3))(10)) == [10, 11, 12]
    assert ran(proj.add.s(2).delay(4)) == 6


def test_a_task_can_be_followed_by_a_group_and_groups_by_groups(proj: Any) -> None:
    assert ran((proj.add.s(2, 2) | group(proj.add.s(1), proj.mul.s(3)))()) == [5, 12]
    assert ran((proj.add.s(2, 2) | group(proj.add.s(1), proj.mul.s(3)) | proj.xsum.s())()) == 17
    nested = group(proj.add.s(1, 1), group(proj.add.s(2, 2), proj.add.s(3, 3)))
    assert ran(nested()) == [2, 4, 6]
    chains = group(proj.add.s(1, 1) | proj.mul.s(2), proj.add.s(2, 2) | proj.mul.s(3))
    assert ran((chains | proj.xsum.s())()) == 16


def test_map_starmap_and_chunks_call_a_task_many_times(proj: Any) -> None:
    assert ran(proj.xsum.map([[1, 2], [3, 4]]).delay()) == [3, 7]
    assert ran(proj.add.starmap(zip(range(3), range(3), strict=True)).delay()) == [0, 2, 4]
    assert ran(proj.add.chunks(zip(range(5), range(5), strict=True), 2)()) == [[0, 2], [4, 6], [8]]
    made = (xmap(proj.xsum.s(), [[1]]), xstarmap(proj.add.s(), [(1, 1)]), chunks(proj.add.s(), [(1, 1)], 1))
    assert [ran(each.apply_async()) for each in made] == [[1], [2], [[2]]]


def test_a_callback_gets_the_result_and_an_error_callback_the_id_of_the_failed_task(proj: Any) -> None:
    heard: list[Any] = []

    @proj.app.task
    def note(value: Any) -> None:
        heard.append(value)

    @proj.app.task
    def note_error(request: Any, exc: BaseException, traceback: str) -> None:
        heard.append((request.id, type(exc), str(exc)))

    fine = proj.add.apply_async((2, 2), link=note.s(), link_error=note_error.s())
    bad = proj.fail.apply_async(link=note.s(), link_error=[note.s(), note_error.s()])
    drain_sync(until_done=True)
    assert fine.get(timeout=120) == 4
    assert sorted(heard, key=str) == sorted([4, bad.id, (bad.id, ValueError, "no such order")], key=str)


def test_a_failure_in_a_chain_ends_it_and_its_error_comes_out_at_the_end(proj: Any) -> None:
    heard: list[Any] = []

    @proj.app.task
    def note(task_id: str) -> None:
        heard.append(task_id)

    result = chain(proj.add.s(1, 1), proj.fail.s(), proj.mul.s(2)).on_error(note.s())()
    drain_sync(until_done=True)
    with pytest.raises(ValueError, match="no such order"):
        result.get(timeout=120)
    assert (result.state, heard) == ("FAILURE", [result.parent.id])
    joined = chord([proj.add.s(1, 1), proj.fail.s()])(proj.xsum.s())
    drain_sync(until_done=True)
    with pytest.raises(ValueError, match="no such order"):
        joined.get(timeout=120)


@pytest.mark.parametrize("form", ["pipe", "chord", "chain"])
def test_an_error_callback_of_a_chords_body_is_called_once_if_the_header_fails(proj: Any, form: str) -> None:
    heard: list[Any] = []

    @proj.app.task
    def on_chord_error(request: Any, exc: BaseException, traceback: str) -> None:
        heard.append((request.id, type(exc), str(exc)))

    @proj.app.task
    def note(task_id: str) -> None:
        heard.append(task_id)

    body = proj.xsum.s().on_error(on_chord_error.s()).on_error(note.s())
    header = [proj.add.s(4, 4), proj.fail.s(), proj.fail.s()]
    made = {"pipe": lambda: group(header) | body, "chord": lambda: chord(header, body), "chain": None}[form]
    result = (chain(group(header), body) if made is None else made()).delay()
    drain_sync(until_done=True)
    assert sorted(heard, key=str) == sorted([result.id, (result.id, ValueError, "no such order")], key=str)
    heard.clear()
    fine = (group(proj.add.s(i, i) for i in range(10)) | body).delay()
    drain_sync(until_done=True)
    assert fine.get(timeout=120) == 90
    assert heard == []


def test_what_is_linked_to_a_member_of_a_group_changes_no_signature_of_the_callers(proj: Any) -> None:
    given = proj.add.s(1, 1)
    for made in (group(given), chord([given], proj.xsum.s())):
        made.tasks[0].link_error(proj.fail.s())
        assert given == proj.add.s(1, 1)


def test_a_signature_travels_as_an_argument(proj: Any) -> None:
    @proj.app.task
    def start(work: Any) -> str:
        return str(signature(work, app=proj.app).apply_async().id)

    started = start.delay(chain(proj.add.s(1, 2), group(proj.mul.s(3), proj.mul.s(4)), proj.xsum.s()))
    assert ran(proj.app.AsyncResult(ran(started))) == 21


def test_options_of_signatures_are_those_of_their_rows(proj: Any, db: psycopg.Connection) -> None:
    chain(proj.add.s(1, 1).set(queue="a"), proj.mul.s(2).set(queue="b", priority=5)).apply_async(countdown=60)
    rows = db.execute("SELECT queue, priority, scheduled_at > now() + '50s' FROM tasks ORDER BY queue").fetchall()
    assert rows == [("a", 0, True), ("b", 5, False)]


def test_what_a_canvas_can_not_do_is_refused_by_name(proj: Any) -> None:
    with pytest.raises(NotOnTaskLib, match="stamp"):
        proj.add.s(1, 1).stamp(lambda: None)
    with pytest.raises(NotOnTaskLib, match="freeze"):
        proj.add.s(1, 1).freeze()


def test_a_group_that_is_empty_has_no_results_and_its_chord_gets_an_empty_list(proj: Any) -> None:
    assert group([]).apply_async().get() == []
    assert ran(chord([])(proj.xsum.s())) == 0


def test_a_group_of_one_task_before_a_task_gives_it_a_list(proj: Any) -> None:
    assert ran((group([proj.add.s(2, 5)]) | proj.xsum.s())()) == 7


def test_a_task_stands_for_its_signature_in_groups_and_chords(proj: Any) -> None:
    assert ran(chord([proj.xsum, proj.xsum], proj.xsum.s()).apply_async(([1, 2],))) == 6


def test_a_group_calls_its_error_callback_for_each_task_that_failed(proj: Any) -> None:
    heard: list[str] = []

    @proj.app.task
    def note(task_id: str) -> None:
        heard.append(task_id)

    many = group([proj.fail.s(), proj.add.s(1, 1), proj.fail.s()])
    many.link_error(note.s())
    result = many.delay()
    drain_sync(until_done=True)
    assert sorted(heard) == sorted([result[0].id, result[2].id])


@pytest.mark.parametrize("also_for_the_header", [False, True])
def test_a_chord_calls_its_error_callback_once_and_for_the_header_if_the_setting_says_so(
    proj: Any, also_for_the_header: bool
) -> None:
    heard: list[str] = []

    @proj.app.task
    def note(task_id: str) -> None:
        heard.append(task_id)

    proj.app.conf.task_allow_error_cb_on_chord_header = also_for_the_header
    header = [proj.fail.s(), proj.add.s(1, 1), proj.fail.s()]
    linked = chord(header, proj.xsum.s())
    linked.link_error(note.s())
    for made in (linked, chain(group(header), proj.xsum.s()).on_error(note.s())):
        heard.clear()
        result = made.delay()
        drain_sync(until_done=True)
        assert len(heard) == (3 if also_for_the_header else 1)
        assert result.id in heard


def test_results_know_the_tasks_that_wait_for_them(proj: Any) -> None:
    linked = proj.add.apply_async((2, 2), link=proj.mul.s(16), link_error=proj.fail.s())
    alone = proj.add.delay(1, 1)
    with pytest.raises(IncompleteStream):
        list(linked.iterdeps())
    drain_sync(until_done=True)
    assert [child.get(timeout=120) for child in linked.children] == [64]
    assert ([value for _, value in linked.collect()], linked.get_leaf(), alone.children) == ([4, 64], 64, [])
    joined = (proj.add.s(1, 1) | group(proj.add.s(1), proj.mul.s(5)) | proj.xsum.s()).delay()
    drain_sync(until_done=True)
    first = joined.parent.parent
    assert [value for _, value in first.collect()] == [2, [3, 10], 3, 10, 13]
    assert [(len(child), child.id) for child in first.children] == [(2, joined.parent.id)]


def test_a_task_of_a_canvas_knows_the_first_one_and_the_one_before(proj: Any) -> None:
    @proj.app.task(bind=True)
    def ids(self: Any, *_: Any) -> list[Any]:
        return [self.request.id, self.request.parent_id, self.request.root_id]

    last = (ids.si() | group(ids.si(), ids.si()) | ids.si()).delay()
    drain_sync(until_done=True)
    members, first = last.parent, last.parent.parent
    assert first.get(timeout=120) == [first.id, None, first.id]
    assert [each.get(timeout=120) for each in members] == [[each.id, first.id, first.id] for each in members]
    assert last.get(timeout=120) in [[last.id, each.id, first.id] for each in members]


def test_a_task_knows_the_one_that_submitted_it_and_the_first_of_all(proj: Any) -> None:
    @proj.app.task(bind=True)
    def ids(self: Any) -> list[Any]:
        return [self.request.parent_id, self.request.root_id]

    @proj.app.task(bind=True)
    def start(self: Any, depth: int) -> list[str]:
        if depth:
            return [*start.delay(depth - 1).id.split(), *self.request.root_id.split()]
        return [ids.delay().id, chain(ids.si(), ids.si()).delay().id]

    top = start.delay(1)
    drain_sync(until_done=True)
    middle, root = top.get(timeout=120)
    alone, chained = proj.app.AsyncResult(middle).get(timeout=120)
    assert root == top.id
    assert proj.app.AsyncResult(alone).get(timeout=120) == [middle, top.id]
    parent, chains_root = proj.app.AsyncResult(chained).get(timeout=120)
    assert chains_root == top.id
    assert proj.app.AsyncResult(parent).get(timeout=120) == [middle, top.id]
    here = start.apply((0,))
    drain_sync()
    assert proj.app.AsyncResult(here.get()[0]).get(timeout=120) == [here.id, here.id]


def test_skew_gives_the_tasks_of_a_group_countdowns_that_grow(proj: Any) -> None:
    made = group(proj.add.s(i, i) for i in range(4)).skew(start=1, stop=3)
    assert [task.options["countdown"] for task in made.tasks] == [1, 2, 3, 3]
