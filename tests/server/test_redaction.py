"""Secrets are masked wherever a task is shown, by one function; whoever reveals them is on record."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tasklib.server.redaction import Redaction
from tasklib.server.settings import ServerSettings
from tasklib.tasks.masking import MASK
from tests.server.api import Api, refused

TASKS = "/api/v1/tasks"
REDACTION = Redaction(ServerSettings().redact)

SECRET = "hunter2-of-the-arguments"
SECRETS = [SECRET, "key-of-the-tags", "token-of-the-progress", "secret-of-the-result", "cookie-of-the-error"]
ERROR = f"""Traceback (most recent call last):
  File "mail.py", line 3, in send
    login(user="ada", password='{SECRET}')
  postgresql://ada:{SECRET}@db/shop refused {SECRET}
ValueError: cookie=cookie-of-the-error was refused"""
SHOWING = ["viewer", "watcher", "operator", "admin", "ann"]


def filled(api: Api, state: str) -> str:
    """Ann's task, with a secret in every place that is shown."""
    task_id = api.submit(
        api.ann,
        task_type="masked",
        parameters={"user": "ada", "password": SECRET, "said": f"it was {SECRET}"},
        tags={"api_key": "key-of-the-tags", "team": "mail"},
    )
    attempt = {"attempt": 1, "outcome": "error", "error": ERROR, "started_at": "2026-01-01", "ended_at": "2026-01-01"}
    if state == "running":
        api.begin(task_id)
    elif state != "pending":
        api.end(task_id, state, value={"secret": "secret-of-the-result", "sum": 3}, error=ERROR)
    api.db.execute(
        "UPDATE tasks SET progress = %s, history = %s WHERE id = %s",
        [Jsonb({"token": "token-of-the-progress", "done": 1}), Jsonb([attempt]), task_id],
    )
    return task_id


def leaked(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize("state", ["pending", "running", "completed", "dead_letter"])
def test_the_api_masks_secrets_unless_asked_to_reveal_them(api: Api, state: str) -> None:
    task_id = filled(api, state)
    paths = [TASKS, f"{TASKS}/{task_id}", f"{TASKS}/{task_id}/explain"]
    paths += (
        ["/api/v1/dead-letters", "/api/v1/dead-letters/groups", "/api/v1/failures"] if state == "dead_letter" else []
    )
    paths += [f"{TASKS}/{task_id}/events"] if state in ("completed", "dead_letter") else []
    for name in SHOWING:
        for path in paths:
            answer = getattr(api, name).get(path)
            assert answer.status_code == 200, answer.text
            assert leaked(answer.text) == [], (name, path, answer.text)
            assert "masked" in answer.text or "groups" in path
    shown = api.viewer.get(f"{TASKS}/{task_id}").json()
    assert shown["parameters"] == {"user": "ada", "password": MASK, "said": f"it was {MASK}"}
    assert shown["tags"] == {"api_key": MASK, "team": "mail"}
    assert shown["progress"] == {"token": MASK, "done": 1}
    if state == "completed":
        assert shown["result"] == {"secret": MASK, "sum": 3}
    if state == "dead_letter":
        assert shown["error"]["message"] == f"ValueError: cookie={MASK} was refused"
        assert f"password={MASK}" in shown["error"]["traceback"]


@pytest.mark.parametrize("state", ["pending", "running", "completed", "dead_letter"])
def test_the_dashboard_masks_secrets_unless_asked_to_reveal_them(api: Api, state: str) -> None:
    task_id = filled(api, state)
    groups = api.viewer.get("/api/v1/dead-letters/groups").json()["groups"]
    paths = ["/", "/tasks", f"/tasks/{task_id}", f"/tasks/{task_id}?reveal=0", "/dead-letters"]
    paths += [f"/dead-letters/{group['fingerprint']}" for group in groups]
    for name in SHOWING:
        for path in paths if name != "ann" else paths[1:]:
            answer = getattr(api, name).get(path, headers={"Accept": "text/html"})
            assert answer.status_code == 200, (name, path, answer.text)
            assert leaked(answer.text) == [], (name, path)
    assert leaked(api.operator.get(f"/tasks/{task_id}/edit").text) == []


@pytest.mark.parametrize("caller", ["viewer", "ann", "watcher"])
def test_revealing_takes_the_role_operator(api: Api, caller: str) -> None:
    task_id = filled(api, "completed")
    for path in (f"{TASKS}/{task_id}", f"{TASKS}/{task_id}/result"):
        problem = refused(getattr(api, caller).get(path, params={"reveal": True}), 403, "role_missing")
        assert problem["roles"] == ["operator"]
    page = getattr(api, caller).get(f"/tasks/{task_id}", params={"reveal": 1})
    assert leaked(page.text) == []
    assert api.client.audit(action="task.reveal", target=task_id) == []


@pytest.mark.parametrize("path", [TASKS + "/{}", TASKS + "/{}/result", "/tasks/{}"])
@pytest.mark.parametrize("caller", ["operator", "admin"])
def test_revealing_is_audited(api: Api, caller: str, path: str) -> None:
    task_id = filled(api, "completed")
    answer = getattr(api, caller).get(path.format(task_id), params={"reveal": True})
    assert "secret-of-the-result" in answer.text
    [record] = api.client.audit(action="task.reveal", target=task_id)
    assert record.actor.startswith(f"token:{caller} (")
    getattr(api, caller).get(path.format(task_id), params={"reveal": True})
    assert len(api.client.audit(action="task.reveal", target=task_id)) == 1, "a page that refreshes itself"


def test_revealing_a_task_of_others_tells_nothing_about_it(api: Api) -> None:
    task_id = filled(api, "completed")
    refused(api.bob.get(f"{TASKS}/{task_id}", params={"reveal": True}), 404, "task_not_found")


def test_the_submitter_of_a_task_is_given_its_result_unmasked(api: Api) -> None:
    task_id = filled(api, "completed")
    whole = {"secret": "secret-of-the-result", "sum": 3}
    assert api.ann.get(f"{TASKS}/{task_id}/result").json()["result"] == whole
    for other in (api.viewer, api.operator, api.admin, api.watcher):
        assert other.get(f"{TASKS}/{task_id}/result").json()["result"] == {"secret": MASK, "sum": 3}


def test_what_was_masked_in_a_form_is_restored_when_it_comes_back(api: Api) -> None:
    task_id = filled(api, "completed")
    task = api.client.get_task(task_id)
    assert task is not None
    texts = REDACTION.texts_of(task)
    shown = REDACTION.masked(task.kwargs, texts)
    assert leaked(str(shown)) == []
    assert REDACTION.restored({**shown, "user": "bob"}, task.kwargs, texts) == {**task.kwargs, "user": "bob"}


# ---- the function ----


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2", "password=••••••"),
        ("PGPASSWORD='a b c' psql", "PGPASSWORD=•••••• psql"),
        ('{"api-key": "x y", "n": 1}', '{"api-key": ••••••, "n": 1}'),
        ("{'accessToken': 'x\\'y', 'n': 1}", "{'accessToken': ••••••, 'n': 1}"),
        ("Authorization: Bearer abc.def ghi", "Authorization: •••••• ghi"),
        ("?api_key=1&page=2", "?api_key=••••••&page=2"),
        ("redis://:pa@ss@host/0 or amqp://u:p@h", "redis://:••••••@host/0 or amqp://u:••••••@h"),
        ("private key => s3cr3t, next", "private key => ••••••, next"),
        ("KeyError: 'token'", "KeyError: 'token'"),
        ("the password was wrong", "the password was wrong"),
        ("password = ", "password = "),
        ("https://example.com/a:b@c", "https://example.com/a:b@c"),
    ],
)
def test_what_follows_such_a_name_in_a_text_is_hidden(text: str, shown: str) -> None:
    assert REDACTION.text(text) == shown


@pytest.mark.parametrize("piece", ["password", "a-", "://a:", '"', "password=\\", "token:'", "x@", " "])
def test_a_long_hostile_text_is_masked_all_the_same(piece: str) -> None:
    text = piece * 100_000
    assert REDACTION.text(text + " password=hunter2")


def test_without_words_nothing_is_hidden() -> None:
    value: Any = {"password": "x", "text": "token=1"}
    nothing = Redaction(())
    assert nothing.masked(value) == value
    assert nothing.text("token=1 redis://:x@y") == "token=1 redis://:x@y"
    assert Redaction(("", "_")).text("token=1") == "token=1"


@pytest.mark.parametrize("tag", ["api_key=key-of-the-tags", "api_key=wrong", 'deep={"api_key": "key-of-the-tags"}'])
def test_a_masked_tag_can_not_be_guessed_by_listing_tasks_that_have_it(api: Api, tag: str) -> None:
    task_id = filled(api, "pending")
    refused(api.viewer.get(TASKS, params={"tag": tag}), 403, "role_missing")
    assert api.operator.get(TASKS, params={"tag": tag}).status_code == 200
    found = api.ann.get(TASKS, params={"tag": "api_key=key-of-the-tags"}).json()["tasks"]
    assert task_id in [task["task_id"] for task in found], "a submitter knows what it sent"
    assert api.viewer.get(TASKS, params={"tag": "team=mail"}).status_code == 200


def test_long_texts_without_a_secret_stay_as_they_are_and_odd_spellings_are_masked() -> None:
    assert REDACTION.text("A" * 1_000_000) == "A" * 1_000_000
    for text in ("PASSWORD=abcdef", "pa\u017f\u017fword=abcdef", "api-\u212aey: abcdef", "x://ada:abcdef@db"):
        assert "abcdef" not in (REDACTION.text(text) or ""), text
