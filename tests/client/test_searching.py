"""Searching: what is found, page by page, at what cost; and cancelling or replaying what is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import Client, Config, TaskState
from tasklib.errors import InvalidOption
from tasklib.sql import statement
from tasklib.store import search
from tasklib.store.search import Part, Search

HISTORY = '[{"attempt": 1, "outcome": "error", "worker": "web1-77", "error": "boom"}]'


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    """On behalf of somebody new: the audit of the tests before stays."""
    with Client(config) as client:
        yield client.on_behalf_of(f"tester {uuid4()}")


def insert(db: psycopg.Connection, count: int = 1, **columns: str) -> None:
    """Rows of these SQL expressions, in which `n` counts from 1; younger ones have larger ids."""
    columns = {"name": "'work'", **columns}
    state = columns.get("state", "'pending'").strip("'")
    if TaskState(state).is_terminal:
        columns.setdefault("completed_at", "now()")
    if state == "failed":
        columns.setdefault("next_retry_at", "now() + interval '1 h'")
    if state == "running":
        columns |= {"worker_id": columns.get("worker_id", "'web1-1'"), "locked_until": "now() + interval '1 h'"}
    names, values = ", ".join(columns), ", ".join(columns.values())
    db.execute(f"INSERT INTO tasks ({names}) SELECT {values} FROM generate_series(1, {count}) AS n".encode())


def found(client: Client, text: str, **options: Any) -> list[str]:
    return [task.name for task in client.search_tasks(text, **options).tasks]


def assorted(db: psycopg.Connection) -> None:
    insert(db, name="'send_email'", queue="'mail'", tags="'{\"customer\": 42}'", priority="100")
    insert(db, name="'send.sms'", queue="'mail'", state="'failed'", tags='\'{"customer": "42", "eu": true}\'')
    insert(db, name="'resize'", state="'dead_letter'", error="E'Traceback\\nOSError: Connection Refused\\n'")
    insert(db, name="'report'", state="'cancelled'", created_at="now() - interval '30 min'", history=f"'{HISTORY}'")
    insert(db, name="'index'", state="'running'", worker_id="'web1-1'")
    insert(db, name="'welcome'", state="'completed'", priority="-10")


def timed(db: psycopg.Connection) -> None:
    """Tasks that differ in what they were given, when they failed, are due, and how long they took."""
    failed = """jsonb_build_array(jsonb_build_object('outcome', 'error', 'ended_at', now() - interval '5 min'))"""
    insert(
        db, name="'order'", kwargs="""'{"order": {"id": 9001}, "to": "ada"}'""", scheduled_at="now() + interval '2 h'"
    )
    insert(db, name="'again'", state="'failed'", history=failed, error="'KeyError: 7'")
    insert(db, name="'dead'", state="'dead_letter'", completed_at="now() - interval '1 day'", error="'KeyError: 7'")
    insert(db, name="'slow'", state="'completed'", started_at="now() - interval '20 s'", kwargs="""'{"order": 9001}'""")
    insert(db, name="'long'", state="'running'", started_at="now() - interval '1 h'")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("args.order:9001", ["slow"]),
        ("args.order.id:9001", ["order"]),
        ("args.order:*", ["slow", "order"]),
        ("args.order:* -args.to:ada", ["slow"]),
        ("failed:<10m", ["again"]),
        ("failed:>1h", ["dead"]),
        ("failed:>1m", ["dead", "again"]),
        ("due:<90m", ["again"]),
        ("due:>90m", ["order"]),
        ("duration:>10s", ["long", "slow"]),
        ("duration:>10s duration:<1m", ["slow"]),
    ],
)
def test_times_durations_and_arguments_are_found(
    client: Client, db: psycopg.Connection, text: str, names: list[str]
) -> None:
    timed(db)
    assert found(client, text) == names


def test_a_cause_finds_failed_tasks_and_dead_letters_that_differ_in_numbers_only(
    client: Client, db: psycopg.Connection
) -> None:
    insert(db, name="'charge'", state="'dead_letter'", error="'KeyError: 7'")
    insert(db, name="'charge'", state="'failed'", error="'KeyError: 8'")
    insert(db, name="'charge'", state="'failed'", error="'ValueError: 8'")
    [cause] = [group.fingerprint for group in client.dead_letter_groups()]
    assert found(client, f"cause:{cause[:8]}") == ["charge", "charge"]
    assert found(client, f"-cause:{cause} state:failed") == ["charge"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["welcome", "index", "report", "resize", "send.sms", "send_email"]),
        ("state:failed", ["send.sms"]),
        ("state:pending", ["send_email"]),
        ("state:running,dead_letter", ["index", "resize"]),
        ("-state:completed,running", ["report", "resize", "send.sms", "send_email"]),
        ("state:failed -state:failed", []),
        ("name:send*", ["send.sms", "send_email"]),
        ("name:send?email", []),
        ("-name:send*,welcome", ["index", "report", "resize"]),
        ("queue:mail -state:failed", ["send_email"]),
        ("-queue:default", ["send.sms", "send_email"]),
        ("tag:customer=42", ["send.sms", "send_email"]),
        ("tag:customer=42 tag:eu=true", ["send.sms"]),
        ("tag:customer=1,42 -tag:eu", ["send_email"]),
        ("tag:customer=7", []),
        ("worker:web1", ["index", "report"]),
        ("worker:web1 -worker:web1-77", ["index"]),
        ('error:"connection refused"', ["resize"]),
        ("state:dead_letter -error:refused", []),
        ("state:dead_letter error:REFUSED", ["resize"]),
        ("priority:high", ["send_email"]),
        ("priority:<0", ["welcome"]),
        ("-priority:>=0", ["welcome"]),
        ("created:>10m", ["report"]),
        ("created:<10m state:cancelled", []),
        ("SEND", ["send.sms", "send_email"]),
        ("send -sms", ["send_email"]),
    ],
)
def test_what_is_found(client: Client, db: psycopg.Connection, text: str, names: list[str]) -> None:
    assorted(db)
    assert found(client, text) == names


def test_a_task_is_found_by_its_id_and_by_the_end_of_it(client: Client, db: psycopg.Connection) -> None:
    assorted(db)
    task = client.search_tasks("name:resize").tasks[0]
    assert task.error == "OSError: Connection Refused"
    for text in (str(task.id), f"id:{task.id}", f"id:{str(task.id)[-12:]}", str(task.id)[-12:]):
        assert found(client, text) == ["resize"]
    assert found(client, f"id:{task.id} state:failed") == []
    assert "resize" not in found(client, f"-id:{task.id}")


@pytest.mark.parametrize(
    ("text", "state"),
    [("", "completed"), ("state:failed", "failed"), ("name:w*", "completed"), ("state:failed name:w*", "failed")],
)
def test_pages_lead_there_and_back(client: Client, db: psycopg.Connection, text: str, state: str) -> None:
    insert(db, 11, name="'work' || n", state=f"'{state}'")
    forth = [client.search_tasks(text, limit=4)]
    while (older := forth[-1].older) is not None:
        forth.append(client.search_tasks(text, limit=4, older_than=older))
    assert [[t.name[4:] for t in p.tasks] for p in forth] == [
        ["11", "10", "9", "8"],
        ["7", "6", "5", "4"],
        ["3", "2", "1"],
    ]
    back = [forth[-1]]
    while (newer := back[-1].newer) is not None:
        back.append(client.search_tasks(text, limit=4, newer_than=newer))
    assert [p.tasks for p in reversed(back)] == [p.tasks for p in forth]
    assert forth[0].newer is None


def test_a_search_that_would_be_long_ends_and_says_where(client: Client, db: psycopg.Connection) -> None:
    insert(db, name="'needle'", state="'completed'")
    insert(db, 25, state="'completed'")
    page = client.search_tasks("name:needle", look=10)
    assert (page.tasks, page.looked_at) == ([], 10)
    page = client.search_tasks("name:needle", look=10, older_than=page.older)
    assert (page.tasks, page.looked_at) == ([], 10)
    page = client.search_tasks("name:needle", look=10, older_than=page.older)
    assert ([t.name for t in page.tasks], page.looked_at, page.older) == (["needle"], None, None)
    assert found(client, "name:needle", look=26) == ["needle"]


def test_a_search_among_tasks_set_aside_ends_where_the_first_state_was_cut(
    client: Client, db: psycopg.Connection
) -> None:
    insert(db, 3, name="'old' || n", state="'dead_letter'")
    insert(db, 20, name="'middle'", state="'failed'")
    insert(db, 3, name="'new' || n", state="'dead_letter'")
    text, seen = "state:failed,dead_letter -name:middle", []
    page = client.search_tasks(text, look=10, limit=8)
    seen += [t.name for t in page.tasks]
    assert seen == ["new3", "new2", "new1"]
    assert page.looked_at == 10
    while page.older is not None:
        page = client.search_tasks(text, look=10, limit=8, older_than=page.older)
        seen += [t.name for t in page.tasks]
    assert seen == ["new3", "new2", "new1", "old3", "old2", "old1"]


def test_pending_tasks_are_found_behind_any_number_of_newer_ones(client: Client, db: psycopg.Connection) -> None:
    insert(db, 3, name="'waits' || n")
    insert(db, 50, state="'completed'")
    page = client.search_tasks("state:pending", look=10)
    assert [t.name for t in page.tasks] == ["waits3", "waits2", "waits1"]
    assert page.looked_at is None
    insert(db, 20, name="'waits too'", queue="'zzz'")
    insert(db, 50, state="'completed'")
    page = client.search_tasks("state:pending", look=10)
    assert page.tasks
    assert page.looked_at == 10


def test_everybody_sees_their_own_only(client: Client, db: psycopg.Connection) -> None:
    insert(db, name="'theirs'", submitted_by="'t2'")
    insert(db, 5, name="'mine'", submitted_by="'t1'", state="'failed'")
    mine = client.on_behalf_of("me", submitted_by="t1", only_own=True)
    theirs = client.search_tasks("theirs").tasks[0].id
    for text in ("", "state:failed", "state:pending", f"id:{theirs}"):
        assert "theirs" not in found(mine, text)
    assert found(mine, "state:failed", limit=3) == ["mine"] * 3
    assert mine.cancel_chosen([theirs]).count == 0
    assert mine.cancel_found("").count == 5
    assert [task.state for task in [client.get_task(theirs)] if task] == ["pending"]


# ---- cost ----


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if plan["Node Type"].endswith("Scan") and plan.get("Relation Name") == "tasks":
        yield plan
    for part in plan.get("Plans", ()):
        yield from scans(part)


def rows_read(db: psycopg.Connection, query: search.Query[Any]) -> int:
    """How many rows of tasks, at most, any part of the plan has read; no sequential scans."""
    text = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement(query.name, None)}"
    row = db.execute(text.encode(), query.parameters).fetchone()
    assert row is not None
    read = [s for s in scans(row[0][0]["Plan"]) if s["Actual Loops"]]
    assert all(s["Node Type"].startswith(("Index", "Bitmap Heap")) for s in read), [s["Node Type"] for s in read]
    return max((s["Actual Rows"] + s.get("Rows Removed by Filter", 0) for s in read), default=0)


LOOK = 300
COSTS: list[tuple[Any, Search, int]] = [
    (search.newest, Search(), 51),
    (search.newest, Search(states=("completed",)), LOOK),
    (search.newest, Search(names=("nothing",)), LOOK),
    (search.newest, Search(states=("pending",)), LOOK),
    (search.waiting, Search(states=("pending",)), LOOK),
    (search.set_aside, Search(states=("failed", "cancelled", "dead_letter")), 51),
    # Where these are few in number, PostgreSQL may take them all from the index at once.
    (search.set_aside, Search(states=("failed",), errors=("%x%",)), 800),
]


def test_a_search_reads_no_more_rows_than_it_may(db: psycopg.Connection, client: Client) -> None:
    """Finished tasks on both sides of waiting ones, and some of each other state."""
    for _ in range(2):
        insert(db, 6_000, state="'completed'", name="'work' || n % 50")
        insert(db, 1_500, name="'wait' || n % 50")
        for state in ("failed", "cancelled", "dead_letter", "running"):
            insert(db, 400, state=f"'{state}'")
    insert(db, 6_000, state="'completed'")
    db.execute("VACUUM ANALYZE tasks")
    failed = [row[0] for row in db.execute("SELECT id FROM tasks WHERE state = 'failed' ORDER BY id").fetchall()]
    for make, sought, most in COSTS:
        look = 51 if sought.is_by_state_alone and make is search.set_aside else LOOK
        for place in ({}, {"older_than": failed[-10]}, {"newer_than": failed[10]}):
            query = make(sought, Part(51, look, **place))
            assert rows_read(db, query) <= most, (query.name, place)
    assert rows_read(db, search.count_states(500)) <= 1_000


def test_states_are_counted_up_to_a_limit(db: psycopg.Connection, client: Client) -> None:
    for state, number in (("failed", 30), ("running", 1), ("cancelled", 501), ("completed", 5)):
        insert(db, number, state=f"'{state}'")
    insert(db, 499)
    some = {"failed": (30, False), "running": (1, False), "cancelled": (500, True), "dead_letter": (0, False)}
    assert _counted(client) == {"pending": (499, False), **some}
    insert(db, 1)
    assert _counted(client) == {"pending": (500, True), **some}


def test_pending_tasks_behind_many_failed_ones_are_not_said_to_be_none(db: psycopg.Connection, client: Client) -> None:
    insert(db, 900, state="'failed'", name="'a'", priority="-10")
    insert(db, 900, name="'b'")
    assert _counted(client)["pending"] == (100, True)


def _counted(client: Client) -> dict[str, tuple[int, bool]]:
    return {state: (counted.count, counted.is_capped) for state, counted in client.count_states().items()}


# ---- what becomes of what is found ----


def states(db: psycopg.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT state, count(*) FROM tasks GROUP BY state").fetchall())


def audited(client: Client) -> list[tuple[str, dict[str, Any]]]:
    return [(r.action, r.details) for r in client.audit(actor=client.calls.identity.actor)]


def test_what_is_found_is_cancelled_and_the_audit_says_how_it_was_sought(
    client: Client, db: psycopg.Connection
) -> None:
    insert(db, 700, name="'a'")
    insert(db, 5, name="'a'", state="'completed'")
    insert(db, 3, name="'a'", state="'running'")
    insert(db, 3, name="'b'")
    done = client.cancel_found("name:a")
    assert (done.count, done.asked, done.next) == (703, 3, None)
    assert states(db) == {"cancelled": 700, "completed": 5, "running": 3, "pending": 3}
    records = audited(client)
    assert {action for action, _ in records} == {"tasks.cancel"}
    assert sum(details["count"] for _, details in records) == 703
    assert {details["search"] for _, details in records} == {"name:a"}


def test_what_is_found_is_replayed_once_each(client: Client, db: psycopg.Connection) -> None:
    insert(db, 600, name="'a'", state="'dead_letter'")
    insert(db, 5, name="'a'", state="'cancelled'")
    insert(db, 5, name="'a'", state="'failed'")
    done = client.replay_found("name:a -state:cancelled")
    assert (done.count, done.next) == (600, None)
    assert states(db) == {"pending": 600, "cancelled": 5, "failed": 5}
    assert {action for action, _ in audited(client)} == {"tasks.replay"}


def test_one_call_changes_so_many_and_the_next_goes_on(
    client: Client, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.client.searching.MOST_AT_ONCE", 20)
    monkeypatch.setattr("tasklib.client.searching.BATCH", 10)
    insert(db, 50)
    done = client.cancel_found("")
    assert done.count == 20
    total = done.count
    while done.next is not None:
        done = client.cancel_found("", older_than=done.next)
        total += done.count
    assert total == 50
    assert states(db) == {"cancelled": 50}


def test_chosen_tasks_are_cancelled_or_replayed_where_that_is_possible(client: Client, db: psycopg.Connection) -> None:
    assorted(db)
    ids: list[UUID] = [t.id for t in client.search_tasks().tasks]
    assert client.replay_chosen(ids).count == 3
    assert states(db) == {"pending": 4, "failed": 1, "running": 1}
    done = client.cancel_chosen(ids)
    assert (done.count, done.asked) == (6, 1)
    assert states(db) == {"cancelled": 5, "running": 1}
    assert {len(details["ids"]) for _, details in audited(client)} == {6}


def test_what_cannot_be_changed_is_said(client: Client) -> None:
    with pytest.raises(InvalidOption, match="can be cancelled"):
        client.cancel_found("state:completed")
    with pytest.raises(InvalidOption, match="can be replayed"):
        client.replay_found("state:failed")
    with pytest.raises(InvalidOption, match="limit"):
        client.replay_chosen([])


@pytest.mark.parametrize(
    ("field", "text"), [("args", "args.order.id:9001"), ("args", 'args.note:"a b"'), ("tags", "tag.customer:42")]
)
def test_an_optional_index_finds_a_value_among_all_tasks(
    client: Client, db: psycopg.Connection, field: str, text: str
) -> None:
    insert(db, 1, kwargs='\'{"order": {"id": 9001}, "note": "a b"}\'', tags="'{\"customer\": 42}'")
    insert(db, 30, name="'newer'")
    before = client.search_tasks(text, look=5)
    assert (before.tasks, before.looked_at) == ([], 5)
    assert before.index is not None
    try:
        db.execute(before.index.encode())
        found = client.search_tasks(text, look=5)
        assert ([task.name for task in found.tasks], found.looked_at, found.index) == (["work"], None, None)
        assert client.search_tasks(f"{text} state:failed", look=5).tasks == []
        assert client.search_tasks(f"{text} -name:work", look=5).tasks == []
    finally:
        db.execute(f"DROP INDEX IF EXISTS tasks_search_{field}".encode())


def test_a_value_that_many_tasks_have_is_searched_among_the_newest(
    client: Client, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(db, 8, tags="'{\"customer\": 42}'")
    db.execute("CREATE INDEX tasks_search_tags ON tasks USING gin (tags jsonb_path_ops)")
    try:
        monkeypatch.setattr("tasklib.client.searching.LOOK", 5)
        pages = client.search_tasks("tag:customer=42", limit=3, look=100)
        assert len(pages.tasks) == 3
        older = client.search_tasks("tag:customer=42", limit=5, look=100, older_than=pages.older)
        assert len(older.tasks) == 5
        assert {t.id for t in pages.tasks}.isdisjoint({t.id for t in older.tasks})
    finally:
        db.execute("DROP INDEX tasks_search_tags")
