"""Schedules over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.api import Api, refused

URL = "/api/v1/schedules"
NIGHTLY = {
    "name": "nightly",
    "task_type": "report",
    "schedule": {"cron": ["0 3 * * *"], "timezone": "Europe/Berlin", "args": {"day": 1, "password": "s3cret-word"}},
}


@pytest.fixture(autouse=True)
def _no_schedules(api: Api) -> None:
    api.db.execute("DELETE FROM schedules")


def test_a_schedule_is_made_shown_changed_paused_resumed_run_and_deleted(api: Api) -> None:
    made = api.operator.post(URL, json=NIGHTLY)
    assert made.status_code == 201, made.text
    shown = api.viewer.get(f"{URL}/nightly").json()
    assert {**shown, "read_at": None} == {**made.json(), "read_at": None}
    assert (shown["state"], shown["source"], shown["task_type"]) == ("active", "api", "report")
    assert shown["description"].startswith("At 03:00 every day, Europe/Berlin")
    assert [each["name"] for each in api.viewer.get(URL).json()["schedules"]] == ["nightly"]
    changed = api.operator.patch(f"{URL}/nightly", json={"schedule": {"overlap": "skip", "jitter": 30}}).json()
    assert (changed["schedule"]["overlap"], changed["schedule"]["cron"]) == ("skip", ["0 3 * * *"])
    assert api.operator.post(f"{URL}/nightly/pause", json={"note": "why"}).json()["pause_note"] == "why"
    assert api.viewer.get(URL, params={"paused": True}).json()["schedules"][0]["state"] == "paused"
    assert api.operator.post(f"{URL}/nightly/resume").json()["state"] == "active"
    task_id = api.operator.post(f"{URL}/nightly/run").json()["task_id"]
    assert api.db.execute("SELECT schedule FROM tasks WHERE id = %s", (task_id,)).fetchone() == ("nightly",)
    assert len(api.viewer.get(f"{URL}/nightly/preview", params={"count": 3}).json()["slots"]) == 3
    assert api.operator.delete(f"{URL}/nightly").status_code == 204
    refused(api.viewer.get(f"{URL}/nightly"), 404, "schedule_not_found")
    actions = [r["action"] for r in api.admin.get("/api/v1/audit", params={"target": "nightly"}).json()["records"]]
    assert set(actions) >= {"schedule.create", "schedule.change", "schedule.pause", "schedule.run", "schedule.delete"}


def test_secrets_in_the_arguments_are_masked(api: Api) -> None:
    api.operator.post(URL, json=NIGHTLY)
    for answer in (api.viewer.get(URL), api.viewer.get(f"{URL}/nightly"), api.admin.get("/api/v1/audit")):
        assert "s3cret-word" not in answer.text


HIDDEN = {
    "password": "s3cret-word",
    "note": "it was s3cret-word",
    "url": "postgresql://ada:pw-in-url@db/shop",
    "text": "token=t0ken-in-text",
}


def test_secrets_in_texts_tags_and_notes_of_a_schedule_are_masked_as_those_of_its_tasks_are(api: Api) -> None:
    schedule = {"every": 3600, "args": HIDDEN, "tags": {"api_key": "key-of-the-tags"}}
    api.operator.post(URL, json={**NIGHTLY, "schedule": schedule})
    api.operator.post(f"{URL}/nightly/pause", json={"note": "password=pw-in-note"})
    shown = [api.viewer.get(f"{URL}{path}") for path in ("", "/nightly", "/nightly/explain")]
    shown += [api.admin.get("/api/v1/audit", params={"action": "schedule.create"})]
    shown += [api.viewer.get("/schedules/show", params={"name": "nightly"}, headers={"Accept": "text/html"})]
    shown += [api.operator.get("/schedules/change", params={"name": "nightly"}, headers={"Accept": "text/html"})]
    for answer in shown:
        assert answer.status_code == 200, answer.text
        for secret in ("s3cret-word", "pw-in-url", "t0ken-in-text", "key-of-the-tags", "pw-in-note"):
            assert secret not in answer.text, answer.url


def test_a_schedule_that_is_sent_back_with_its_masks_keeps_what_they_hide(api: Api) -> None:
    api.operator.post(URL, json={**NIGHTLY, "schedule": {"every": 3600, "args": HIDDEN, "tags": {"token": "abcdef"}}})
    shown = api.viewer.get(f"{URL}/nightly").json()["schedule"]
    for body in ({"schedule": {**shown, "overlap": "skip"}, "replace": True}, {"schedule": {"args": shown["args"]}}):
        assert api.operator.patch(f"{URL}/nightly", json=body).status_code == 200
        [(spec, template)] = api.db.execute("SELECT spec, template FROM schedules").fetchall()
        assert (spec["args"], spec["tags"], template["kwargs"]) == (HIDDEN, {"token": "abcdef"}, HIDDEN)
    assert spec["overlap"] == "skip"


@pytest.mark.parametrize(
    "at", ["0001-01-05T00:00:00Z", "1969-12-31T00:00:00Z", "3000-01-01T00:00:00Z", "9999-12-28T00:00:00Z"]
)
def test_instants_in_years_without_slots_are_refused(api: Api, at: str) -> None:
    api.operator.post(URL, json=NIGHTLY)
    refused(api.viewer.get(f"{URL}/nightly/explain", params={"at": at}), 422, "invalid_option")
    stretch = {"start": at, "end": "2026-03-01T02:00:00Z"}
    refused(api.operator.post(f"{URL}/nightly/backfill", json=stretch), 422, "invalid_option")
    page = api.viewer.get("/schedules/show", params={"name": "nightly", "at": at}, headers={"Accept": "text/html"})
    assert (page.status_code, "in the years 1970 to 2999" in page.text) == (422, True)


def test_a_backfill_shows_and_then_runs_the_slots(api: Api) -> None:
    api.operator.post(URL, json={**NIGHTLY, "schedule": {"every": 3600}})
    stretch = {"start": "2026-03-01T00:00:00Z", "end": "2026-03-01T02:00:00Z"}
    look = api.operator.post(f"{URL}/nightly/backfill", json={**stretch, "dry_run": True}).json()
    assert (look["count"], look["task_ids"]) == (3, [])
    assert len(api.operator.post(f"{URL}/nightly/backfill", json=stretch).json()["task_ids"]) == 3
    assert api.operator.post(f"{URL}/nightly/backfill", json=stretch).json()["task_ids"] == []


def test_a_slot_is_explained_and_any_schedule_previewed(api: Api) -> None:
    api.operator.post(URL, json=NIGHTLY)
    said = api.viewer.get(f"{URL}/nightly/explain", params={"at": "2026-03-01T02:00:00Z"}).json()["sentences"]
    assert "was before the schedule was made" in said[0]
    assert said[1].startswith("Its next slot is ")
    refused(api.viewer.get(f"{URL}/nightly/explain", params={"at": "2026-03-01T02:00:00"}), 422, "invalid_request")
    refused(api.viewer.get(f"{URL}/daily/explain"), 404, "schedule_not_found")
    look = api.viewer.post(f"{URL}/preview", json={"schedule": {"every": 60}, "count": 3}).json()
    assert (look["description"].partition(";")[0], len(look["slots"])) == ("Every minute", 3)
    refused(api.viewer.post(f"{URL}/preview", json={"schedule": {"cron": ["61 * * * *"]}}), 422, "invalid_option")


def test_a_task_says_which_slot_of_which_schedule_it_is_for(api: Api) -> None:
    api.operator.post(URL, json={**NIGHTLY, "schedule": {"every": 3600}})
    slot = "2026-03-01T00:00:00Z"
    [run] = api.operator.post(f"{URL}/nightly/backfill", json={"start": slot, "end": slot}).json()["task_ids"]
    by_hand = api.operator.post(f"{URL}/nightly/run").json()["task_id"]
    shown = [api.viewer.get(f"/api/v1/tasks/{id_}").json() for id_ in (run, by_hand)]
    assert [(task["schedule"], task["slot"]) for task in shown] == [("nightly", slot), ("nightly", None)]


def test_a_schedule_with_slashes_in_its_name_has_all_its_routes(api: Api) -> None:
    api.operator.post(URL, json={**NIGHTLY, "name": "eu/nightly"})
    for name in ("eu/nightly", "eu%2Fnightly"):
        assert api.viewer.get(f"{URL}/{name}").json()["name"] == "eu/nightly"
        assert len(api.viewer.get(f"{URL}/{name}/preview").json()["slots"]) == 20
    assert api.operator.delete(f"{URL}/eu/nightly").status_code == 204


def test_a_page_of_schedules_with_large_arguments_ends_early_and_its_next_leads_on(api: Api) -> None:
    for name in ("a", "b", "c"):
        schedule = {"every": 3600, "args": {"text": "x" * 400_000}}
        assert api.operator.post(URL, json={**NIGHTLY, "name": name, "schedule": schedule}).status_code == 201
    first = api.viewer.get(URL).json()
    assert ([each["name"] for each in first["schedules"]], first["next"]) == (["a", "b"], "b")
    rest = api.viewer.get(URL, params={"after": "b"}).json()
    assert ([each["name"] for each in rest["schedules"]], rest["next"]) == (["c"], None)


def test_schedules_come_in_pages_by_name(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.operator.post(URL, json={**NIGHTLY, "name": name})
    first = api.viewer.get(URL, params={"limit": 2}).json()
    assert ([each["name"] for each in first["schedules"]], first["next"]) == (["a", "b"], "b")
    second = api.viewer.get(URL, params={"limit": 2, "after": "b"}).json()
    assert ([each["name"] for each in second["schedules"]], second["next"]) == (["c"], None)


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"cron": ["61 * * * *"]},
        {"cron": ["@daily"], "timezone": "Mars/Olympus"},
        {"cron": ["@daily"], "moon": "full"},
        {"cron": {"a": 1}},
        {"every": 1e300},
        {"cron": ["@daily"], "args": [1]},
        {"cron": ["@daily"], "args": {"a": "\x00"}},
        {"cron": ["* * * * *"], "exclude": ["* * * * *"]},
    ],
)
def test_a_schedule_that_can_not_be_meant_is_refused(api: Api, schedule: dict[str, Any]) -> None:
    answer = api.operator.post(URL, json={**NIGHTLY, "schedule": schedule})
    assert answer.status_code == 422, answer.text
