"""Every change an operator makes is recorded with it, once, and only if there was something to change."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config
from tasklib.client import identity
from tasklib.errors import InvalidOption, TaskNotFound, WorkerNotFound
from tasklib.store.audit import CHANGES_NOTHING, Action, AuditRecord
from tests.client.audited_changes import ANEW_EACH_TIME, CHANGES, Scene
from tests.client.conftest import Either

READING = {
    *("get_task", "list_tasks", "wait_for", "explain_task", "queue_position"),
    *("workers", "pauses", "settings", "dead_letters", "dead_letter_groups", "tokens", "audit"),
    *(
        "search_tasks",
        "suggest",
        "saved_searches",
        "failures",
        "count_states",
        "latest_dead_letter_groups",
        "dead_letters_alike",
    ),
    *("schedules", "get_schedule", "preview_schedule", "explain_schedule"),
    *("flows", "get_flow", "steps_of", "queue_bounds", "name_bounds", "approvals", "approval", "limits", "breakers"),
    *("failures", "replays", "get_replay"),
}
SUBMITTING = {"submit_task", "submit", "submit_many", "submit_each", "submit_flow", "signal"}
NO_CALLS = {"perform", "close", "on_behalf_of", "asynchronous", "on_shard"}
DECLARING = {"sync_limits", "sync_breakers"}
"""What the code says, as workers store it: no decision of an operator."""
ALIKE = {"cancel_chosen", "cancel_found", "replay_found", "answer", "reject"}
"""Other ways to an action that is tried here; what they record is in test_searching.py and test_approvals.py."""


every_change = pytest.mark.parametrize("action", CHANGES)


@pytest.fixture
def scene(client: Client, db: psycopg.Connection) -> Scene:
    db.execute("DELETE FROM limits")
    db.execute("DELETE FROM pauses")
    db.execute("DELETE FROM schedules")
    db.execute("DELETE FROM saved_searches")
    db.execute("UPDATE settings SET promote_to_medium_after_seconds = NULL, promote_to_high_after_seconds = NULL")
    return Scene(client, db)


def records(client: Client, after: int) -> list[AuditRecord]:
    return [r for r in client.audit() if r.id > after]


def last_id(client: Client) -> int:
    return max((r.id for r in client.audit(limit=1)), default=0)


# ---- none is forgotten ----


def test_every_call_is_known_to_read_to_submit_or_to_be_recorded() -> None:
    calls = {name for name, value in vars(Client).items() if not name.startswith("_") and callable(value)}
    changes = {change.__name__ for change in CHANGES.values()}
    others = READING | SUBMITTING | DECLARING | NO_CALLS | ALIKE
    # bound_queue does both, and bound_name is recorded as the same.
    assert calls - others - {"bound_name"} == changes - {"unbound_queue"}
    of_a_command = {Action.ROTATE_KEY}  # no call of the client: see tests/worker/test_sealed.py
    assert CHANGES.keys() == set(Action) - CHANGES_NOTHING - of_a_command


@every_change
async def test_a_change_is_recorded_with_its_actor(
    action: Action, scene: Scene, config: Config, client: Client, either: Either
) -> None:
    change = CHANGES[action](scene)
    before = last_id(client)
    answer = await getattr(either, change.call)(*change.args, **change.options)
    [record] = records(client, before)
    assert (record.actor, record.action) == (identity.this_user(), action)
    made = {Action.CREATE_TOKEN: lambda: answer.info.id, Action.START_REPLAY: lambda: answer.id}.get(action)
    assert record.target == (str(made()) if made else change.target)
    assert record.details.items() >= change.details.items()


@pytest.mark.parametrize("action", sorted(CHANGES.keys() - ANEW_EACH_TIME))
def test_what_was_done_before_changes_nothing_and_is_not_recorded(action: Action, scene: Scene, client: Client) -> None:
    change = CHANGES[action](scene)
    change.on(client)
    before, picture = last_id(client), scene.picture()
    change.on(client)
    assert scene.picture() == picture
    assert records(client, before) == []


@every_change
def test_a_change_that_cannot_be_recorded_is_not_made(action: Action, scene: Scene, client: Client) -> None:
    """They are one statement: there is no moment between them in which anything could break."""
    change = CHANGES[action](scene)
    before, picture = last_id(client), scene.picture()
    scene.db.execute("ALTER TABLE audit ADD CONSTRAINT disk_full CHECK (false) NOT VALID")
    try:
        with pytest.raises(psycopg.errors.CheckViolation):
            change.on(client)
    finally:
        scene.db.execute("ALTER TABLE audit DROP CONSTRAINT disk_full")
    assert scene.picture() == picture
    assert records(client, before) == []


def test_what_is_refused_or_only_looked_at_is_not_recorded(client: Client, scene: Scene) -> None:
    finished, waiting = scene.dead_letter(), scene.task()
    before = last_id(client)
    client.cancel_task(finished)
    with pytest.raises(InvalidOption):
        client.replay_task(waiting)
    for call in (client.cancel_task, client.replay_task):
        with pytest.raises(TaskNotFound):
            call(uuid4())
    with pytest.raises(WorkerNotFound):
        client.drain_worker("nobody")
    client.cancel_tasks(name="work", dry_run=True)
    client.replay_dead_letters(everything=True, dry_run=True)
    client.purge_dead_letters(everything=True, dry_run=True)
    client.cancel_tasks(name="nothing like it")
    client.change_settings()
    client.change_settings(promote_to_high_after_seconds=None)
    assert records(client, before) == []


# ---- what a record says ----


def test_a_running_task_is_asked_once(client: Client, scene: Scene) -> None:
    running = scene.task(state="'running'", worker_id="'w'", locked_until="now() + interval '1 h'")
    before = last_id(client)
    assert client.cancel_task(running) == client.cancel_task(running) == "running"
    assert len(records(client, before)) == 1


def test_many_leave_a_record_for_each_batch_with_its_count(
    client: Client, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.client.operations.CANCEL_BATCH", 2)
    monkeypatch.setattr("tasklib.client.dead_letters.BATCH", 2)
    for _ in range(3):
        scene.task(), scene.dead_letter()
    before = last_id(client)
    client.cancel_tasks(name="work")
    client.purge_dead_letters(name="work", limit=3)
    counts = [(r.action, r.details["count"]) for r in reversed(records(client, before))]
    assert counts == [("tasks.cancel", n) for n in (2, 1)] + [("dead_letters.purge", n) for n in (2, 1)]


def test_a_record_names_the_first_hundred_ids_of_many(client: Client, scene: Scene) -> None:
    wanted = [scene.dead_letter(), *(str(uuid4()) for _ in range(500))]
    client.purge_dead_letters(ids=wanted)
    details = client.audit(limit=1)[0].details
    assert (details["ids"], details["count"]) == (wanted[:100], 1)


def test_a_moment_is_recorded_as_such(client: Client, scene: Scene, db: psycopg.Connection) -> None:
    scene.task()
    moment = db.execute("SELECT now() - interval '1 h'").fetchall()[0][0]
    client.cancel_tasks(created_after=moment)
    assert client.audit(limit=1)[0].details["created_after"] == moment.isoformat()


# ---- who it was ----


def test_the_actor_is_the_systems_user_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    identity.this_user.cache_clear()
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    monkeypatch.setattr("socket.gethostname", lambda: "web1\n")
    assert identity.this_user() == "ann@web1?"
    identity.this_user.cache_clear()


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    identity.this_user.cache_clear()
    monkeypatch.setattr("getpass.getuser", unknown)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    assert identity.this_user().startswith("uid 4711@")
    identity.this_user.cache_clear()


async def test_the_configuration_may_name_another_actor(either: Either, config: Config, client: Client) -> None:
    named = Either(type(either.client)(config.with_changes(actor="deploy script")))
    await named.create_token("x", roles="viewer")
    named.client.close()
    assert client.audit(limit=1)[0].actor == "deploy script"
    assert client.tokens()[-1].created_by == "deploy script"


async def test_a_client_acts_on_behalf_of_others_on_the_same_connections(either: Either, client: Client) -> None:
    ann, bob = (Either(either.client.on_behalf_of(name)) for name in ("ann@example.com", "bob@example.com"))
    for somebody in (ann, either, bob):
        assert await somebody.create_token("x", roles="viewer")
    assert [r.actor for r in client.audit(limit=3)] == ["bob@example.com", identity.this_user(), "ann@example.com"]
    assert len(either.client.database._idle) == 1
    assert type(ann.client) is type(either.client)


@pytest.mark.parametrize("actor", ["", "  ", "a\nb", "a\x00", "x" * 201, "\ud800", None, 5])
def test_an_actor_is_a_name_that_can_be_shown(client: Client, actor: Any) -> None:
    with pytest.raises(InvalidOption, match="an actor is a name"):
        client.on_behalf_of(actor)


# ---- reading it ----


def test_pages_follow_each_other(client: Client) -> None:
    before = last_id(client)
    for n in range(5):
        client.pause(name=f"page{before}-{n}")
    first = client.audit(limit=2)
    second = client.audit(limit=2, before=first[-1])
    assert client.audit(limit=4) == first + second
    assert client.audit(limit=2, before=first[-1].id) == second


async def test_records_are_found_by_action_actor_and_target(either: Either, client: Client) -> None:
    who = f"ann-{uuid4()}"
    ann = client.on_behalf_of(who)
    ann.pause(queue=who)
    ann.resume(queue=who)
    assert [r.action for r in await either.audit(actor=who)] == ["resume", "pause"]
    assert [r.action for r in await either.audit(target=f"queue:{who}")] == ["resume", "pause"]
    assert [r.action for r in await either.audit(actor=who, action="pause")] == ["pause"]
    assert await either.audit(actor=who, action="task.cancel") == []


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": 10_001},
        {"limit": True},
        {"action": "task.explode"},
        {"actor": "\x00"},
        {"target": "\ud800"},
        {"target": 5},
        {"before": -1},
        {"before": 2**63},
        {"before": "1"},
        {"before": True},
    ],
)
def test_bad_filters_are_refused(client: Client, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        client.audit(**options)


async def test_it_is_there_in_both_colours(config: Config) -> None:
    async with AsyncClient(config) as client:
        assert await client.audit(limit=1) is not None
