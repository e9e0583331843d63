"""The pages of queues, task names and workers, and charts, without a browser: what they say, and where they lead."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.client.search_language import parse
from tasklib.db.database import Database
from tasklib.doctor.findings import Finding, Severity
from tasklib.server.dashboard.chart_data import MEASURES, PERIODS, ChartQuery, Subject, of_groups, of_points
from tasklib.server.dashboard.charts import ChartData, draw
from tasklib.server.dashboard.keeping_up import rates
from tasklib.stats import Key, Stat
from tasklib.store import fleet, maintenance, stats
from tasklib.store.fleet import Deploy
from tasklib.store.stats import Point
from tests.dashboard.filling import row
from tests.server.conftest import Running

START = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


def get(web: Running, path: str) -> str:
    answer = web.http.get(path)
    answer.raise_for_status()
    return answer.text


def words(page: str) -> str:
    """The text of a page, without its tags."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


def attempts(database: Database, worker: str | None = None, **counts: int) -> None:
    buckets = [0] * 16
    buckets[7] = 1
    told = [
        Stat(Key("send", "mail", "medium", o), n, 0.75 * n, 0.0, [b * n for b in buckets]) for o, n in counts.items()
    ]
    database.run(stats.add(told, worker=worker, number=1))


def waiting(db: psycopg.Connection, seconds: float, **columns: Any) -> None:
    values = {"name": "send", "queue": "mail", **columns}
    names = ", ".join(values)
    db.execute(
        f"INSERT INTO tasks ({names}, scheduled_at) VALUES ({', '.join(['%s'] * len(values))}, "
        "now() - make_interval(secs => %s))".encode(),
        [*values.values(), seconds],
    )


def test_a_queue_that_is_behind_says_since_when_and_one_click_from_the_overview_shows_it(
    web: Running, database: Database, db: psycopg.Connection
) -> None:
    waiting(db, 600)
    term = database.run(fleet.lead("leader", 600))
    assert term is not None
    database.run(maintenance.take_snapshot(term, 1000))
    db.execute("INSERT INTO depths SELECT minute - interval '4 min', '', '', 0, false, 0 FROM depths WHERE level = ''")
    overview = get(web, "/")
    assert "1 queue is behind." in words(overview)
    [link] = re.findall(r'<li><a href="(/queues/mail)">', overview)
    page = words(get(web, link))
    [(since,)] = db.execute(
        "SELECT to_char((minute - interval '4 min') AT TIME ZONE 'UTC', 'HH24:MI') FROM depths WHERE queue = 'mail'"
    ).fetchall()
    assert f"Behind since {since} ." in page, "the last count at which it kept up"
    assert "1 min is allowed" in page
    db.execute("DELETE FROM depths")
    assert "Behind at least since" in words(get(web, link)), "nothing was counted: it may be longer"


def test_a_queue_with_its_own_bound_or_a_pause_is_not_behind(web: Running, db: psycopg.Connection) -> None:
    waiting(db, 600)
    db.execute("INSERT INTO backpressure (subject, max_wait) VALUES ('queue:mail', 900)")
    assert "All queues keep up" in words(get(web, "/"))
    db.execute("UPDATE backpressure SET max_wait = 300")
    assert "5 min is allowed" in words(get(web, "/queues/mail"))
    db.execute("INSERT INTO pauses (kind, value) VALUES ('queue', 'mail')")
    page = words(get(web, "/queues/mail"))
    assert "Paused since" in page
    assert "Behind" not in page
    assert "paused: mail" in words(get(web, "/"))


def test_a_queue_says_that_no_worker_fits_what_waits(web: Running, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO workers (id, names, capabilities) VALUES ('w1', NULL, '{eu}')")
    waiting(db, 30, required_capabilities=["gpu"])
    for path in ("/queues/mail", "/names/send"):
        page = words(get(web, path))
        assert "No live worker takes send in queue mail , which requires gpu" in page, path
    assert "1 none fits all" in words(get(web, "/queues"))
    db.execute("UPDATE worker_registrations SET capabilities = '{eu,gpu}'")
    assert "none fits" not in words(get(web, "/queues"))
    assert "No live worker takes" not in words(get(web, "/queues/mail"))


def test_the_rate_of_a_queue_is_of_the_last_minutes_not_of_an_hour(
    web: Running, database: Database, db: psycopg.Connection
) -> None:
    attempts(database, completed=600)
    db.execute("UPDATE stats_deltas SET at = at - interval '30 minutes'")
    page = words(get(web, "/queues"))
    assert " 0 /min" in page
    attempts(database, completed=50)
    assert " 10 /min" in words(get(web, "/queues"))


def test_submissions_are_unknown_until_a_minute_was_counted(web: Running, db: psycopg.Connection) -> None:
    assert "not counted lately" in words(get(web, "/queues/mail"))
    db.execute(
        """INSERT INTO stats (span, start, name, queue, level, outcome, reason, count, seconds, waited, buckets, waits)
           SELECT 60, date_trunc('minute', now()) - interval '2 min', n, q, '', o, '', c, 60, 0, '{}', '{}'
           FROM (VALUES ('send', 'mail', 'submitted', 12), ('', '', 'arrivals_counted', 0)) AS v (n, q, o, c)"""
    )
    assert "Submitted 12 /min last 1 min" in words(get(web, "/queues/mail"))
    assert "Submitted 0 /min last 1 min" in words(get(web, "/queues/other"))


def test_what_comes_in_is_compared_with_what_goes_out_of_the_same_minutes() -> None:
    def minute(counted: bool, submitted: int, completed: int) -> Point:
        mark = [Stat(Key("", "", "", "arrivals_counted"), 0, 60.0)] if counted else []
        counts = [Stat(Key("a", "q", "", "submitted"), submitted), Stat(Key("a", "q", "", "completed"), completed)]
        return Point([*counts, *mark], START)

    seen = rates([minute(False, 0, 900), *[minute(True, 30, 20)] * 3, minute(False, 0, 500), minute(False, 0, 1)])
    assert (seen.submitted, seen.finished, seen.minutes, seen.grows) == (30, 20, 3, 10)
    blind = rates([minute(False, 0, 7)] * 3)
    assert (blind.submitted, blind.finished, blind.grows) == (None, 7, 0)


def test_limits_and_bounds_that_apply_are_on_the_page(web: Running, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO limits (name, max_running) VALUES ('queue:mail', 3), ('queue:other', 9), ('smtp', 5)")
    db.execute("""INSERT INTO limited_names VALUES ('send', '[{"limit": "smtp", "cost": 1}]')""")
    db.execute("INSERT INTO backpressure (subject, max_pending) VALUES ('queue:mail', 5000)")
    queue = words(get(web, "/queues/mail"))
    assert "queue:mail : 0 of 3 running" in queue
    assert "queue:other" not in queue
    assert "more than 5,000 wait" in queue
    assert "smtp : 0 of 5 running" in words(get(web, "/names/send"))
    db.execute("INSERT INTO backpressure (subject, max_wait) VALUES ('name:send', 90)")
    assert "refuses submissions while the oldest waits over" in words(get(web, "/names/send"))


def test_a_worker_has_a_page_with_its_attempts_even_after_it_has_left(web: Running, database: Database) -> None:
    attempts(database, "w1", completed=9, failed=1)
    page = words(get(web, "/workers/w1"))
    assert "gone" in page
    assert "Completed 9 " in page
    assert "Failed attempts 10% 1 of 10" in page
    assert web.http.get("/workers/never").status_code == 404


@pytest.mark.parametrize("value", ["a/b", "a?b=c", "50% off", "tab\there", "..x", "x" * 3000, "\U0001f984#1", "a//b/"])
def test_any_name_has_a_page_that_its_link_leads_to(web: Running, database: Database, value: str) -> None:
    database.run(stats.add([Stat(Key(value, value, "medium", "completed"), 4)]))
    page = get(web, "/queues")
    for place in ("queues", "names"):
        link = f"/{place}/{quote(value, safe='')}"
        assert f'href="{link}"' in page
        assert "of 4 in 1h" in words(get(web, link))


@pytest.mark.parametrize("of", MEASURES)
@pytest.mark.parametrize("by", ["", "outcome", "queue", "name", "worker"])
def test_every_chart_has_a_page_a_table_and_files(web: Running, database: Database, of: str, by: str) -> None:
    attempts(database, "w1", completed=8, failed=2)
    for period in PERIODS:
        page = get(web, f"/charts?of={of}&by={by}&period={period}")
        assert page.count("<tr>") > len(re.findall(r'<g class="col"', page)), "a row for each column, and the head"
    [file] = re.findall(r'href="([^"]+data\.csv[^"]*)"', page)
    rows = list(csv.DictReader(io.StringIO(get(web, unescape(file)))))
    steps = web.http.get(unescape(file).replace("data.csv", "data.json")).json()["steps"]
    assert [row["start"] for row in rows] == [step["start"] for step in steps]
    assert [float(v) for row in rows for k, v in row.items() if k != "start" and "efore" not in k and v] == [
        float(v) for step in steps for v in step["values"].values() if v is not None
    ]


def test_attempts_are_charted_by_group_and_add_up(web: Running, database: Database) -> None:
    attempts(database, "w1", completed=8, failed=2)
    database.run(stats.add([Stat(Key("other", "bulk", "low", "completed"), 5)], worker="w2", number=1))
    for by, expected in (
        ("queue", {"mail": 10, "bulk": 5}),
        ("name", {"send": 10, "other": 5}),
        ("worker", {"w1": 10, "w2": 5}),
        ("outcome", {"Completed": 13, "Failed": 2, "Dead letter": 0}),
    ):
        steps = web.http.get(f"/charts/data.json?of=outcomes&by={by}").json()["steps"]
        sums = {key: sum(step["values"].get(key) or 0 for step in steps) for key in steps[-1]["values"]}
        assert sums == expected, by


def test_what_waits_is_charted_by_queue(web: Running, db: psycopg.Connection) -> None:
    depths = {"mail": 3, "bulk": 7, **{f"q{n}": 1 for n in range(9)}}
    db.execute(
        "INSERT INTO depths (minute, queue, level, depth, oldest_age_seconds, capped) "
        "SELECT date_trunc('minute', now()), queue, 'low', depth, 10 * depth, false "
        "FROM unnest(%s::text[], %s::int[]) AS counted (queue, depth)",
        [[*depths], [*depths.values()]],
    )
    for of, expected in (
        ("waiting", {"bulk": 7, "mail": 3, "rest": 3}),
        ("oldest", {"bulk": 70, "mail": 30, "rest": 10}),
    ):
        steps = web.http.get(f"/charts/data.json?of={of}&by=queue").json()["steps"]
        [known] = [step["values"] for step in steps if any(value is not None for value in step["values"].values())]
        assert {name: known[name] for name in ("bulk", "mail")} == {name: expected[name] for name in ("bulk", "mail")}
        assert (known["all others"], len(known)) == (expected["rest"], 9)
    page = get(web, "/charts?of=waiting&by=queue")
    assert "q=queue%3Abulk" in unescape(page)


def test_names_on_the_page_of_a_task_and_in_lists_lead_to_their_pages(
    web: Running, client: Client, db: psycopg.Connection
) -> None:
    task_id = row(db, "completed", name="mail.send", queue="mail", worker_id="web-1")
    for path in (f"/tasks/{task_id}", "/tasks"):
        page = get(web, path)
        assert 'href="/queues/mail"' in page
        assert 'href="/workers/web-1"' in page
    assert 'href="/names/mail.send"' in get(web, f"/tasks/{task_id}")
    db.execute(
        "UPDATE tasks SET started_at = now() - interval '3 days', completed_at = now() - interval '3 days', "
        "created_at = now() - interval '3 days', scheduled_at = now() - interval '3 days'"
    )
    assert 'href="/workers/web-1"' not in get(web, f"/tasks/{task_id}"), "that page is gone after two days"


def test_a_record_of_the_audit_leads_to_the_page_of_its_target(web: Running, client: Client) -> None:
    task_id = client.submit_task("work", registered_elsewhere=True)
    client.cancel_task(task_id)
    client.pause(queue="mail/in")
    client.set_limit("stripe", max_running=5)
    client.create_schedule("work", "@hourly", name="nightly", registered_elsewhere=True)
    page = unescape(get(web, "/audit"))
    for link in (f"/tasks/{task_id}", "/queues/mail%2Fin", "/limits/show?name=stripe", "/schedules/show?name=nightly"):
        assert f'href="{link}"' in page
        assert web.http.get(link).status_code == 200
    client.delete_schedule("nightly")
    assert unescape(get(web, "/audit")).count('href="/schedules/show?name=nightly"') == 1


def test_a_name_that_looks_like_a_formula_is_text_in_the_file(web: Running, database: Database) -> None:
    database.run(stats.add([Stat(Key("=cmd()", "q", "low", "completed"), 5)]))
    assert "'=cmd()" in web.http.get("/charts/data.csv?of=outcomes&by=name").text.splitlines()[0]


def test_a_column_leads_to_the_tasks_of_its_time_and_group(config: Config) -> None:
    day = datetime(2026, 5, 5, tzinfo=UTC)
    subject = Subject(queue='a "b', name="send")
    data = of_points(ChartQuery("failures", subject=subject), [Point([], START)], [])
    assert data.search is not None
    path = data.search("dead_letter", START, START + timedelta(minutes=1))
    found = parse(parse_qs(urlsplit(path).query)["q"][0], config, day)
    assert (found.failed_from, found.failed_to) == (START, START + timedelta(minutes=1))
    assert found.states == ("dead_letter",)
    grouped = of_groups(ChartQuery("outcomes", by="worker"), [(START, [Point([], START, "web-1")])], [])
    assert grouped.search is not None
    path = grouped.search("g0", START, START + timedelta(minutes=1))
    assert parse_qs(urlsplit(path).query)["q"] == ["worker:web-1 created:2026-05-04T12:00Z..2026-05-04T12:01Z"]


def test_a_chart_marks_deploys_and_says_itself_in_a_sentence() -> None:
    steps = [(START + timedelta(minutes=n), {"p95": None if n == 1 else float(n)}) for n in range(4)]
    data = ChartData("Run time", "run", False, True, {"p95": "p95"}, steps, 60)
    deploys = [Deploy(START, START + timedelta(seconds=90)), Deploy(START, START - timedelta(hours=1))]
    chart = draw(data, deploys)
    assert [mark.x for mark in chart.marks] == [1.5]
    assert chart.lines == (("p95", "M0.2 100.0L0.5 100.0M2.2 60.0L2.5 60.0L3.5 40.0"),), "broken where it isn't known"
    assert chart.summary == "Run time: p95 3.0 s at the end, at most 3.0 s."
    assert chart.columns[1].tip == "not known"


def test_the_period_before_is_a_line_only_as_far_as_it_is_kept(web: Running, database: Database) -> None:
    attempts(database, completed=1)
    assert "line before" in get(web, "/charts?of=outcomes&period=1h")
    assert "line before" not in get(web, "/charts?of=outcomes&period=1h&compare=0")
    page = get(web, "/charts?of=outcomes&period=30d")
    assert "line before" not in page
    assert "The period before is not kept" in words(page)


def test_the_overview_folds_all_but_three_warnings(web: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(number: int) -> None:
        warnings = [Finding(Severity.WARNING, "lanes", f"warning {n}") for n in range(number)]
        web.app.state.findings = (time.monotonic() + 3600, warnings)

    web.http.post("/queues/pause", data={"csrf": web.app.state.sessions.csrf(None), "kind": "queue", "value": "x"})
    found(3)
    assert "more warning" not in get(web, "/")
    found(5)
    page = get(web, "/")
    assert "2 more warnings" in words(page)
    assert page.index("warning 2") < page.index('id="more-warnings"') < page.index("warning 3")
