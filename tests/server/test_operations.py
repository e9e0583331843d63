"""What operators and admins do over HTTP: dead letters, workers, pauses, settings, tokens, the audit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.api import Api, refused
from tests.server.conftest import bearer

DEAD = "/api/v1/dead-letters"


def _dead(api: Api, count: int, by: Any = None, error: str = "ValueError: no", **body: Any) -> list[str]:
    """Dead letters, in the order in which they were given up."""
    ids = [api.submit(by, **body) for _ in range(count)]
    for task_id in ids:
        api.end(task_id, "dead_letter", error=error)
    return ids


# ---- dead letters ----


def test_dead_letters_come_in_pages_the_latest_first(api: Api) -> None:
    ids = _dead(api, 5)
    first = api.viewer.get(DEAD, params={"limit": 2}).json()
    # What was the last of its page is replayed meanwhile: the cursor is good all the same.
    api.operator.post(f"/api/v1/tasks/{ids[3]}/replay")
    second = api.viewer.get(DEAD, params={"limit": 2, "cursor": first["next"]}).json()
    third = api.viewer.get(DEAD, params={"limit": 2, "cursor": second["next"]}).json()
    pages = [[t["task_id"] for t in page["tasks"]] for page in (first, second, third)]
    assert pages == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]
    assert third["next"] is None
    refused(api.viewer.get(DEAD, params={"cursor": "WyJ0YXNrcyIsMV0"}), 422, "invalid_option")


def test_dead_letters_are_filtered_and_grouped_by_cause(api: Api) -> None:
    _dead(api, 3, error="ValueError: order 17")
    [other] = _dead(api, 1, error="KeyError: 'x'", queue="mail", task_type="api_other")
    assert [t["task_id"] for t in api.viewer.get(DEAD, params={"error": "keyerror"}).json()["tasks"]] == [other]
    assert [t["task_id"] for t in api.viewer.get(DEAD, params={"queue": "mail"}).json()["tasks"]] == [other]
    groups = api.viewer.get(f"{DEAD}/groups").json()["groups"]
    assert [(g["count"], g["error"]) for g in groups] == [(3, "ValueError: order 17"), (1, "KeyError: 'x'")]
    found = api.viewer.get(DEAD, params={"fingerprint": groups[1]["fingerprint"][:8]}).json()["tasks"]
    assert [t["task_id"] for t in found] == [other]
    refused(api.viewer.get(DEAD, params={"fingerprint": "xyz"}), 422, "invalid_request")


def test_replaying_dead_letters_by_filter_in_batches(api: Api) -> None:
    ids = _dead(api, 3)
    _dead(api, 1, task_type="api_other")
    refused(api.operator.post(f"{DEAD}/replay", json={}), 422, "invalid_option")
    choice = {"name": "api_any", "limit": 2}
    looked = api.operator.post(f"{DEAD}/replay", json={**choice, "dry_run": True}).json()
    assert looked == {"count": 2, "task_ids": ids[:2], "more": True, "dry_run": True}
    assert api.operator.post(f"{DEAD}/replay", json=choice).json() == {**looked, "dry_run": False}
    assert api.operator.post(f"{DEAD}/replay", json=choice).json()["task_ids"] == ids[2:]
    assert len(api.viewer.get(DEAD).json()["tasks"]) == 1
    assert api.operator.post(f"{DEAD}/replay", json={"everything": True}).json()["count"] == 1


def test_purging_dead_letters(api: Api) -> None:
    ids = _dead(api, 3)
    refused(api.operator.delete(DEAD), 422, "invalid_option")
    refused(api.ann.delete(DEAD, params={"everything": True}), 403, "role_missing")
    chosen = {"task_id": [ids[0], ids[1]]}
    assert api.operator.delete(DEAD, params={**chosen, "dry_run": True}).json()["count"] == 2
    assert api.operator.delete(DEAD, params=chosen).json()["task_ids"] == ids[:2]
    assert api.operator.delete(DEAD, params={"everything": True}).json()["task_ids"] == ids[2:]
    assert api.viewer.get(DEAD).json() == {"tasks": [], "next": None, "looked_at": None}


def test_a_submitter_has_its_own_dead_letters(api: Api) -> None:
    own, _ = _dead(api, 1, api.ann), _dead(api, 2, api.bob)
    assert [t["task_id"] for t in api.ann.get(DEAD).json()["tasks"]] == own
    assert [g["count"] for g in api.ann.get(f"{DEAD}/groups").json()["groups"]] == [1]
    assert api.watcher.post(f"{DEAD}/replay", json={"everything": True}).json()["count"] == 0
    assert api.ann.post(f"{DEAD}/replay", json={"everything": True}).json()["task_ids"] == own


# ---- the fleet ----


def test_the_queue_in_figures(api: Api) -> None:
    path = "/api/v1/queue/stats"
    nothing = {"depth": 0, "is_capped": False, "oldest_age_seconds": None}
    empty = api.viewer.get(path).json()
    assert empty["queues"] == {"high": nothing, "medium": nothing, "low": nothing}
    assert (empty["by_queue"], empty["running"]) == ({}, 0)
    for priority in (100, 5, 0, -10):
        api.submit(priority=priority)
    api.submit(queue="mail", priority="high")
    api.submit(delay=3600)
    api.begin(api.submit())
    api.db.execute("INSERT INTO workers (id, capacity, current_load) VALUES ('w1', 5, 2), ('w2', 3, 3)")
    api.db.execute("INSERT INTO workers (id, reported_status, capacity) VALUES ('w3', 'dead', 9)")
    api.db.execute(
        "INSERT INTO stats_deltas (outcome, count) VALUES ('completed', 7), ('failed', 2), ('dead_letter', 1)"
    )
    stats = api.viewer.get(path).json()
    assert {level: d["depth"] for level, d in stats["queues"].items()} == {"high": 2, "medium": 2, "low": 1}
    assert {queue: d["high"]["depth"] for queue, d in stats["by_queue"].items()} == {"default": 1, "mail": 1}
    assert stats["queues"]["high"]["oldest_age_seconds"] >= 0
    assert stats["running"] == 1
    assert stats["workers"] == {"active": 2, "draining": 0, "dead": 1, "total_capacity": 8, "used_capacity": 5}
    assert stats["throughput"] == {"completed_last_minute": 7, "failed_last_minute": 3}
    refused(api.ann.get(path), 403, "role_missing")


def test_a_worker_is_listed_with_the_tasks_it_holds(api: Api) -> None:
    api.db.execute("INSERT INTO workers (id, names) VALUES ('w1', '{api_any}'), ('w2', NULL)")
    mine = sorted(api.submit() for _ in range(2))
    for task_id in mine:
        api.begin(task_id, "w1")
    api.submit()
    found = {w["worker_id"]: w for w in api.viewer.get("/api/v1/workers").json()["workers"]}
    assert {name: w["current_tasks"] for name, w in found.items()} == {"w1": mine, "w2": []}
    assert (found["w1"]["names"], found["w2"]["names"]) == (["api_any"], None)


def test_workers_are_listed_and_drained(api: Api) -> None:
    api.db.execute("INSERT INTO workers (id, names, capacity, current_load) VALUES ('gpu/1', '{resize}', 5, 2)")
    [worker] = api.viewer.get("/api/v1/workers").json()["workers"]
    assert (worker["worker_id"], worker["status"], worker["names"]) == ("gpu/1", "active", ["resize"])
    for _ in range(2):
        answer = api.operator.post("/api/v1/workers/gpu%2F1/drain")
        assert (answer.status_code, answer.json()) == (202, {"worker_id": "gpu/1", "status": "draining"})
    assert api.viewer.get("/api/v1/workers").json()["workers"][0]["drain_requested_at"]
    refused(api.operator.post("/api/v1/workers/nobody/drain"), 404, "worker_not_found")
    refused(api.viewer.post("/api/v1/workers/gpu%2F1/drain"), 403, "role_missing")


def test_pausing_and_resuming_a_queue_and_a_name(api: Api) -> None:
    first = api.operator.post("/api/v1/pauses", json={"queue": "mail/a"})
    assert (first.status_code, first.json()) == (201, {"kind": "queue", "value": "mail/a", "changed": True})
    again = api.operator.post("/api/v1/pauses", json={"queue": "mail/a"})
    assert (again.status_code, again.json()["changed"]) == (200, False)
    api.operator.post("/api/v1/pauses", json={"name": "resize"})
    listed = api.viewer.get("/api/v1/pauses").json()["pauses"]
    assert {(p["kind"], p["value"]) for p in listed} == {("queue", "mail/a"), ("name", "resize")}
    assert api.operator.delete("/api/v1/pauses", params={"queue": "mail/a"}).json()["changed"] is True
    assert api.operator.delete("/api/v1/pauses", params={"queue": "mail/a"}).json()["changed"] is False
    refused(api.operator.post("/api/v1/pauses", json={"queue": "a", "name": "b"}), 422, "invalid_request")
    refused(api.operator.delete("/api/v1/pauses"), 422, "invalid_option")


def test_settings_are_changed_and_given_back(api: Api) -> None:
    path = "/api/v1/settings"
    changed = api.operator.patch(path, json={"promote_to_medium_after_seconds": 300}).json()
    assert changed == {
        "promote_to_medium_after_seconds": 300.0,
        "promote_to_high_after_seconds": 1200.0,
        "changed": ["promote_to_medium_after_seconds"],
    }
    assert api.operator.patch(path, json={}).json() == changed
    given_back = api.operator.patch(path, json={"promote_to_medium_after_seconds": None}).json()
    assert given_back == api.viewer.get(path).json()
    assert (given_back["promote_to_medium_after_seconds"], given_back["changed"]) == (600.0, [])
    for wrong in (0, -1, "300", 2**31):
        body = {"promote_to_medium_after_seconds": wrong}
        refused(api.operator.patch(path, json=body), 422, "invalid_request")


# ---- tokens and the audit ----


def test_a_token_is_created_used_and_revoked(api: Api) -> None:
    path = "/api/v1/tokens"
    body = {"name": "gpu box", "roles": ["worker", "viewer"], "queues": ["b", "a"], "expires_in_seconds": 60}
    answer = api.admin.post(path, json=body)
    assert answer.status_code == 201
    new = answer.json()
    assert (new["name"], new["roles"], new["queues"]) == ("gpu box", ["viewer", "worker"], ["a", "b"])
    assert api.running.http.get("/api/v1/workers", headers=bearer(new["token"])).status_code == 200
    listed = api.admin.get(path)
    assert new["id"] in [t["id"] for t in listed.json()["tokens"]]
    assert new["token"] not in listed.text
    revoked = api.admin.delete(f"{path}/{new['prefix']}").json()
    assert revoked["revoked_at"]
    assert api.admin.delete(f"{path}/{new['id']}").json()["revoked_at"] == revoked["revoked_at"]
    refused(api.admin.delete(f"{path}/0123456789ab"), 404, "token_not_found")
    refused(api.admin.delete(f"{path}/nonsense"), 422, "invalid_option")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "", "roles": ["viewer"]},
        {"name": "x", "roles": []},
        {"name": "x", "roles": ["boss"]},
        {"name": "x", "roles": ["viewer"], "queues": ["a"]},
        {"name": "x", "roles": ["worker"], "queues": []},
        {"name": "x\n", "roles": ["viewer"]},
        {"name": "x", "roles": ["viewer"], "expires_in_seconds": 0},
    ],
)
def test_a_token_that_makes_no_sense_is_refused(api: Api, wrong: dict[str, Any]) -> None:
    assert api.admin.post("/api/v1/tokens", json=wrong).status_code == 422
    refused(api.operator.post("/api/v1/tokens", json=wrong), 403, "role_missing")


def test_the_audit_names_the_token_and_comes_in_pages(api: Api) -> None:
    for queue in ("a", "b", "c"):
        api.operator.post("/api/v1/pauses", json={"queue": queue})
    choice = {"action": "pause", "limit": 2}
    first = api.admin.get("/api/v1/audit", params=choice).json()
    assert [r["target"] for r in first["records"]] == ["queue:c", "queue:b"]
    assert first["records"][0]["actor"].startswith("token:operator (")
    second = api.admin.get("/api/v1/audit", params={**choice, "cursor": first["next"]}).json()
    assert second["records"][0]["target"] == "queue:a"
    one = api.admin.get("/api/v1/audit", params={"target": "queue:b"}).json()["records"]
    assert [r["action"] for r in one] == ["pause"]
    refused(api.admin.get("/api/v1/audit", params={"action": "sing"}), 422, "invalid_request")
    refused(api.operator.get("/api/v1/audit"), 403, "role_missing")


# ---- circuit breakers ----


def test_a_breaker_of_the_code_that_was_removed_is_listed_without_its_terms(api: Api) -> None:
    api.db.execute("DELETE FROM breakers")
    declared = '{"failures": 0.5, "at_least": 20, "within": 60, "pause": 60, "probes": 3}'
    api.db.execute(
        "INSERT INTO breakers (name, source, declared, failures, at_least, within, pause, probes) "
        "VALUES ('charge', 'code', %s, 0.5, 20, 60, 60, 3)",
        [declared],
    )
    assert api.operator.delete("/api/v1/breakers", params={"name": "charge"}).json()["changed"]
    [left] = api.viewer.get("/api/v1/breakers").json()["breakers"]
    assert [left[term] for term in ("failures", "at_least", "within", "pause", "probes")] == [None] * 5
