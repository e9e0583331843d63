"""The screens of schedules without a browser: forms, the calendar, what is masked, odd names and unreadable rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from tasklib import Client, InvalidOption, Schedule
from tasklib.server.dashboard.schedule_calendar import MOST_IN_HOUR, calendar
from tasklib.server.dashboard.schedule_form import EMPTY, filled, read
from tasklib.server.redaction import Redaction
from tasklib.store.schedules import ComingSchedule
from tasklib.tasks.masking import MASK
from tests.server.conftest import Running

NOW = datetime(2026, 3, 28, 12, 30, tzinfo=UTC)
REDACTION = Redaction(("password",))


def _post(web: Running, path: str, **fields: Any) -> httpx.Response:
    return web.http.post(path, data={"csrf": web.app.state.sessions.csrf(None), **fields})


def _create(client: Client, name: str, schedule: Schedule | str = "@daily") -> None:
    client.create_schedule("report", schedule, name=name, registered_elsewhere=True)


EVERYTHING = Schedule(
    ["0 3 * * *", "30 4 * * MON"],
    timezone="Europe/Berlin",
    exclude=[date(2026, 12, 25), "* * 1 1 *"],
    starts_at=datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
    ends_at=datetime(2027, 1, 1, tzinfo=UTC),
    catch_up="all",
    catch_up_limit=7,
    catch_up_window=timedelta(seconds=90.5),
    overlap="skip",
    jitter=12.25,
    pause_after=3,
    args={"full": True, "password": "hunter2", "deep": [{"password": "x"}]},
    queue="reports",
    priority="low",
    max_retries=2,
    timeout_seconds=60,
    tags={"team": "a"},
    required_capabilities=["gpu", "eu"],
)


@pytest.mark.parametrize("schedule", [EVERYTHING, Schedule("@daily"), Schedule(every=timedelta(days=7), anchor=NOW)])
def test_a_form_that_is_sent_back_as_it_was_changes_nothing(schedule: Schedule) -> None:
    texts = filled(schedule, REDACTION)
    assert "hunter2" not in str(texts)
    assert read({name: text.replace("\n", "\r\n") for name, text in texts.items()}, schedule, REDACTION) == schedule


def test_fields_of_a_form_are_read_on_the_clock_of_its_zone() -> None:
    given = {**EMPTY, "every": "90m", "timezone": "Europe/Berlin", "starts_at": "2026-07-01T03:00", "jitter": "1.5s"}
    schedule = read(given, None, REDACTION)
    assert schedule == Schedule(
        every=timedelta(minutes=90),
        timezone="Europe/Berlin",
        starts_at=datetime(2026, 7, 1, 1, tzinfo=UTC),
        jitter=timedelta(seconds=1.5),
    )
    moved = read({**filled(schedule, REDACTION), "timezone": "UTC"}, schedule, REDACTION)
    assert moved.starts_at == datetime(2026, 7, 1, 3, tzinfo=UTC), "the time of day is kept, not the instant"


def test_masks_that_were_left_stand_for_what_they_hid() -> None:
    texts = {**filled(EVERYTHING, REDACTION), "args": json.dumps({"full": False, "password": MASK, "more": 1})}
    assert dict(read(texts, EVERYTHING, REDACTION).args) == {"full": False, "password": "hunter2", "more": 1}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("every", "soon"),
        ("every", "9" * 30 + "w"),
        ("starts_at", "yesterday"),
        ("pause_after", "two"),
        ("args", "{"),
        ("args", "[" * 10_000),
        ("args", "[1]"),
        ("tags", "1"),
        ("timezone", "Mars/Olympus"),
        ("priority", "urgent\x00"),
        ("overlap", "dance"),
        ("catch_up_limit", "1e3"),
    ],
)
def test_a_field_that_makes_no_sense_is_refused_by_its_name(name: str, text: str) -> None:
    if name == "priority":
        assert read({**EMPTY, "cron": "@daily", name: text}, None, REDACTION).priority == text  # told by the client
        return
    with pytest.raises(InvalidOption, match=name):
        read({**EMPTY, "cron": "@daily", name: text}, None, REDACTION)


def test_the_calendar_lists_rare_slots_by_hour_and_counts_dense_ones() -> None:
    found = [
        ComingSchedule("nightly", Schedule("0 3 * * *", timezone="Europe/Berlin").to_json()),
        ComingSchedule("minutely", Schedule("* * * * *").to_json()),
        ComingSchedule("sometimes", Schedule(["*/5 9-11 * * *", "0 0 * * *"], exclude=["0 9 * * *"]).to_json()),
        ComingSchedule("unreadable", {"cron": ["@daily"], "timezone": "Mars/Olympus"}),
        *(ComingSchedule(f"midnight-{n:02}", Schedule("@daily").to_json()) for n in range(MOST_IN_HOUR + 5)),
    ]
    shown = calendar(found, NOW, "Europe/Berlin")
    assert [(f.name, f.count, f.is_capped) for f in shown.frequent] == [
        ("minutely", 1440, False),
        ("sometimes", 36, False),
    ]
    midnight, night = shown.hours[0], shown.hours[-1]
    assert (midnight.start.hour, len(midnight.slots), midnight.more) == (1, MOST_IN_HOUR, 5)
    # The clocks of Berlin skip the hour from two to three in this night.
    nightly = [slot.at for hour in shown.hours for slot in hour.slots if slot.name == "nightly"]
    assert [at.isoformat() for at in nightly] == ["2026-03-29T03:00:00+02:00"]
    assert night.start > midnight.start


def test_an_hour_that_the_clocks_show_twice_is_two_hours_on_the_calendar() -> None:
    hourly = [ComingSchedule("hourly", Schedule("0 0-2 * * *").to_json())]
    shown = calendar(hourly, datetime(2026, 10, 24, 12, 30, tzinfo=UTC), "Europe/Berlin")
    assert [hour.start.isoformat() for hour in shown.hours] == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


@pytest.mark.parametrize("name", ["..", "a/b", "new", "show", "?x=1&y=#z", "ключ", " "])
def test_a_schedule_with_an_odd_name_is_shown_changed_and_deleted(web: Running, client: Client, name: str) -> None:
    _create(client, name)
    for screen in ("show", "change", "backfill"):
        assert web.http.get(f"/schedules/{screen}", params={"name": name}).status_code == 200
    assert _post(web, "/schedules/pause", name=name, note="why").status_code == 303
    assert client.get_schedule(name).pause_note == "why"
    assert _post(web, "/schedules/delete", name=name).headers["location"] == "/schedules"
    assert client.schedules() == []
    assert web.http.get("/schedules/show", params={"name": name}).status_code == 404


def test_a_schedule_that_can_not_be_read_is_listed_explained_and_mended(
    web: Running, client: Client, db: psycopg.Connection
) -> None:
    _create(client, "good")
    _create(client, "lost")
    db.execute("""UPDATE schedules SET spec = spec || '{"timezone": "Mars/Olympus"}' WHERE name = 'lost'""")
    assert [info.name for info in client.schedules()] == ["good", "lost"]
    assert "Mars/Olympus" in (client.get_schedule("lost").unreadable or "")
    assert "Mars/Olympus" in client.explain_schedule("lost")[0]
    for path in ("", "/calendar", "/show?name=lost", "/change?name=lost", "/backfill?name=lost"):
        answer = web.http.get(f"/schedules{path}")
        assert answer.status_code == 200, path
        assert "good" in answer.text or "Mars/Olympus" in answer.text or "backfill" in path
    assert client.pause_schedule("lost").state == "paused"
    assert client.change_schedule("lost", timezone="Europe/Berlin").unreadable is None
    assert client.resume_schedule("lost").state == "active"


def test_a_form_with_a_mistake_keeps_what_was_typed_and_says_why(web: Running, client: Client) -> None:
    answer = _post(web, "/schedules/new", name="n", task="t", cron="61 * * * *", args='{"a": 1}', step="save")
    assert answer.status_code == 422
    assert "61" in answer.text
    assert "{&#34;a&#34;: 1}" in answer.text
    taken = _post(web, "/schedules/new", name="n", task="t", cron="@daily", step="save")
    assert taken.status_code == 303
    again = _post(web, "/schedules/new", name="n", task="t", cron="@daily", step="save")
    assert (again.status_code, "already" in again.text) == (422, True)
    nameless = _post(web, "/schedules/new", name="", task="", cron="@daily", step="save")
    assert nameless.status_code == 422


def test_a_preview_changes_nothing(web: Running, client: Client) -> None:
    answer = _post(web, "/schedules/new", name="n", task="t", cron="0 3 * * *", step="preview")
    assert "At 03:00 every day, UTC" in answer.text
    assert client.schedules() == []
    _create(client, "n")
    before = client.get_schedule("n")
    changed = _post(web, "/schedules/change", name="n", cron="0 4 * * *", revision="1", step="preview")
    assert "At 04:00 every day" in changed.text
    assert client.get_schedule("n").schedule == before.schedule


def test_pages_of_schedules_follow_their_names(web: Running, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklib.server.dashboard.schedules.PAGE", 2)
    for name in ("a&b", "c d", "e"):
        _create(client, name)
    first = web.http.get("/schedules").text
    assert "after=c+d" in first
    assert "name=e" in web.http.get("/schedules?after=c+d").text
