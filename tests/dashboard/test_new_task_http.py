"""Submitting a task by hand on the dashboard, without a browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tasklib import Client, Config, task
from tests.dashboard.conftest import HTML
from tests.dashboard.test_tasks_http import post, text_of
from tests.server.conftest import Running, bearer, running


def test_a_task_is_submitted_with_what_the_form_says_and_the_rest_is_the_functions_own(
    web: Running, client: Client
) -> None:
    @task(name="dashboard_new", queue="quick", max_retries=9)
    async def new(number: int) -> None: ...

    for name in ("dashboard_new", "known_to_workers_only"):
        fields = {"name": f" {name} ", "arguments": '{"number": 2}', "tags": '{"why": "by hand"}', "due": "2h"}
        done = post(web, "/tasks/new", **fields)
        assert done.status_code == 303
        made = client.get_task(done.headers["location"].rpartition("/")[2])
        assert made is not None
        assert (made.name, made.kwargs, made.tags) == (name, {"number": 2}, {"why": "by hand"})
        assert made.scheduled_at > datetime.now(UTC) + timedelta(hours=1)
        assert (made.queue, made.max_retries) == (("quick", 9) if name == "dashboard_new" else ("default", 3))
    said = {"queue": "slow", "priority": "9", "max_retries": "1", "timeout_seconds": "33"}
    done = post(web, "/tasks/new", name="dashboard_new", arguments='{"number": 2}', **said)
    made = client.get_task(done.headers["location"].rpartition("/")[2])
    assert made is not None
    assert (made.queue, made.priority, made.max_retries, made.timeout_seconds) == ("slow", 9, 1, 33)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"arguments": '{"number": "many"}'}, "number"),
        ({"arguments": "[]"}, "The arguments are a JSON object"),
        ({"tags": "{"}, "The tags are not JSON"),
        ({"priority": "high"}, "The priority is a whole number"),
        ({"due": "soon"}, "Due is a time such as"),
        ({"name": " "}, "name"),
    ],
)
def test_a_mistake_is_said_and_what_was_typed_stays(
    web: Running, client: Client, wrong: dict[str, str], said: str
) -> None:
    @task(name="dashboard_new_checked")
    async def checked(number: int) -> None: ...

    fields = {"name": "dashboard_new_checked", "arguments": '{"number": 1}', "queue": "typed", **wrong}
    refused = post(web, "/tasks/new", **fields)
    assert refused.status_code == 422
    assert said in text_of(refused)
    assert 'value="typed"' in refused.text
    assert client.list_tasks() == []


def test_the_form_offers_the_names_of_live_workers_and_takes_one_from_its_address(
    web: Running, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO workers (id, names, heartbeat_timeout_seconds) VALUES ('w', '{mail.send,\"<b>\"}', 86400)")
    page = web.http.get("/tasks/new?name=mail.send%22%3E&queue=mail", headers=HTML).text
    assert '<option value="mail.send">' in page
    assert '<option value="&lt;b&gt;">' in page
    assert 'value="mail.send&#34;&gt;"' in page
    assert 'value="mail"' in page


def test_viewers_can_not_submit_and_submitters_see_only_their_own(config: Config, client: Client) -> None:
    viewer = client.create_token("v", roles=["viewer"]).text
    submitter = client.create_token("s", roles=["submitter"])
    with running(config) as web:
        shown = web.http.get("/tasks", headers={**HTML, **bearer(viewer)}).text
        assert "/tasks/new" not in shown
        assert web.http.get("/tasks/new", headers={**HTML, **bearer(viewer)}).status_code == 403
        assert post(web, "/tasks/new", bearer(viewer), name="x", arguments="{}").status_code == 403
        assert client.list_tasks() == []
        assert "/tasks/new" in web.http.get("/tasks", headers={**HTML, **bearer(submitter.text)}).text
        assert post(web, "/tasks/new", bearer(submitter.text), name="x", arguments="{}").status_code == 303
    assert [t.submitted_by for t in client.list_tasks()] == [str(submitter.info.id)]
