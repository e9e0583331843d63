"""Tasks listed over HTTP: pages and filters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.api import Api, walked

TASKS = "/api/v1/tasks"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("count", [0, 2, 3, 7])
def test_pages_have_every_task_once_the_newest_first(api: Api, count: int) -> None:
    ids = [api.submit() for _ in range(count)]
    assert walked(api) == ids[::-1]


def test_every_filter_chooses(api: Api) -> None:
    plain = api.submit(task_type="api_plain")
    mail = api.submit(task_type="api_mail", queue="mail", tags={"n": 1, "kind": "a=b"})
    failed = api.submit(task_type="api_mail")
    api.db.execute("UPDATE tasks SET state = 'failed', next_retry_at = now() WHERE id = %s", [failed])
    running = api.submit()
    api.begin(running, "host/w1")
    moment = api.client.get_task(failed).created_at.isoformat()  # type: ignore[union-attr]
    assert walked(api, name="api_mail") == [failed, mail]
    assert walked(api, queue="mail") == [mail]
    assert walked(api, tag="n=1") == walked(api, tag=["n=1", "kind=a=b"]) == [mail]
    assert walked(api, tag="n=2") == []
    assert walked(api, state=["failed", "running"]) == [running, failed]
    assert walked(api, worker="host/w1") == [running]
    assert walked(api, worker="w2") == []
    assert walked(api, created_after=moment) == [running, failed]
    assert walked(api, created_before=moment) == [mail, plain]


def test_a_search_chooses_page_by_page_and_says_how_far_it_read(api: Api) -> None:
    plain = api.submit(task_type="api_plain", parameters={"order": 9001})
    mail = api.submit(task_type="api_mail", queue="mail", tags={"n": 1})
    assert walked(api, search="name:api_*") == [mail, plain]
    assert walked(api, search="args.order:9001 state:pending") == [plain]
    assert walked(api, search="tag.n:1") == [mail]
    assert walked(api, search="due:<1h -queue:mail") == [plain]
    answer = api.viewer.get(TASKS, params={"search": "name:api_*", "limit": 1}).json()
    assert (len(answer["tasks"]), answer["looked_at"], bool(answer["next"])) == (1, None, True)


def test_a_search_that_means_nothing_or_asks_for_a_secret_is_refused(api: Api) -> None:
    wrong = api.viewer.get(TASKS, params={"search": "state:fialed"})
    assert (wrong.status_code, "Did you mean failed?" in wrong.json()["detail"]) == (422, True)
    both = api.viewer.get(TASKS, params={"search": "name:x", "state": "failed"})
    assert (both.status_code, "not both" in both.json()["detail"]) == (422, True)
    hidden = api.viewer.get(TASKS, params={"search": "args.password:hunter2"})
    assert (hidden.status_code, "masked" in hidden.json()["detail"]) == (422, True)


def test_a_page_asked_too_large_is_as_large_as_allowed(api: Api) -> None:
    api.ann.post(f"{TASKS}/batch", json={"tasks": [{"task_type": "a"}] * 201})
    page = api.viewer.get(TASKS, params={"limit": 5000}).json()
    assert len(page["tasks"]) == 200
    assert page["next"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": "x"},
        {"state": "waiting"},
        {"tag": "x"},
        {"cursor": "x"},
        {"cursor": "WyJhdWRpdCIsMV0"},
        {"cursor": "WyJ0YXNrcyIsMV0"},
        {"name": "a\x00"},
        {"created_after": "yesterday"},
        {"created_after": "2026-01-01T00:00:00"},
    ],
)
def test_a_wrong_filter_is_refused(api: Api, wrong: dict[str, Any]) -> None:
    assert api.viewer.get(TASKS, params=wrong).status_code == 422
