"""A secret in every place that takes a value, and every page and answer that there is: none shows it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from psycopg.types.json import Jsonb

from tasklib.server.redaction import MASK
from tasklib.testing import databases
from tests.server.api import Api, api_on, refused
from tests.server.test_access_matrix import routes
from tests.server.test_redaction import REDACTION, SECRET, filled

TASKS = "/api/v1/tasks"
SPOKEN = f"password={SECRET}"
PARAMETERS = {
    "user": "ada",
    "password": SECRET,
    "said": f"it was {SECRET}",
    "smtp": {"host": "mx", "password": SECRET},
    "url": f"amqp://ada:{SECRET}@mq/",
    "note": SPOKEN,
}
TAGS = {"api_key": "key-of-the-tags", "url": f"amqp://ada:{SECRET}@mq/"}
QUERIES = {
    "/approvals/{task_id}": ["name=go"],
    "/schedules/show": ["name=nightly"],
    "/schedules/change": ["name=nightly"],
    "/schedules/backfill": ["name=nightly"],
    "/limits/show": ["name=mails"],
    "/flows/{flow_id}/confirm": ["action=cancel", "action=replay"],
    "/jump": ["q=sec", "q=sec&format=json", f"q={SECRET[:6]}&format=json"],
    "/tasks": ["", "q=name:masked", "q=state:dead_letter"],
    "/tasks/export": ["q=", "q=&format=json"],
    "/tasks/suggest": [
        # Not `said`: what other values of a task are, suggestions don't know, as lists of errors don't.
        *(f"q=args.{key}:" for key in ("password", "smtp", "smtp.password", "url", "note")),
        *("q=tag:", "q=tag:url%3D", "q=tag.url:", "q=tag.api_key:", "q=args.", "q=cause:", "q=name:"),
    ],
}
CALLERS = ["viewer", "admin", "ann"]


@pytest.fixture(scope="module")
def api(server_url: str, template_database: str) -> Iterator[Api]:
    with databases.database(server_url, template_database) as url, api_on(url) as made:
        yield made


def fill(api: Api) -> dict[str, list[str]]:
    """Secrets everywhere; the ids and names that paths need."""
    tasks = {state: filled(api, state) for state in ("pending", "running", "completed", "dead_letter")}
    api.db.execute("UPDATE tasks SET kwargs = %s, tags = %s", [Jsonb(PARAMETERS), Jsonb(TAGS)])
    node = {"task_type": "masked", "parameters": PARAMETERS, "tags": TAGS}
    nodes = [{"name": "a", "task": node}, {"name": "b", "tasks": [{**node, "results": {"x": "a"}}]}]
    flow = api.ann.post("/api/v1/flows", json={"nodes": nodes}).json()["flow_id"]
    asked = {"title": f"Go, with {SPOKEN}?", "role": "approver", "details": PARAMETERS}
    for kind, name, said in [("step", "pay", PARAMETERS), ("signal", "paid", PARAMETERS), ("approval", "go", asked)]:
        step = [tasks["running"], kind, name, Jsonb({"value": said})]
        api.db.execute("INSERT INTO steps (task, kind, name, result, token) VALUES (%s, %s, %s, %s, 1)", step)
    schedule = {"cron": ["@daily"], "args": PARAMETERS, "tags": TAGS}
    done = [
        api.operator.post("/api/v1/schedules", json={"name": "nightly", "task_type": "masked", "schedule": schedule}),
        api.operator.post("/api/v1/schedules/nightly/run"),
        api.operator.post("/api/v1/schedules/nightly/pause", json={"note": SPOKEN}),
        api.operator.patch(f"{TASKS}/{tasks['pending']}", json={"parameters": {**PARAMETERS, "user": "eve"}}),
        api.operator.post(f"{TASKS}/{tasks['running']}/signals", json={"name": "go", "payload": PARAMETERS}),
        api.operator.put("/api/v1/limits", json={"name": "mails", "max_running": 3}),
        api.operator.post(f"{TASKS}/cancel", json={"tags": TAGS, "name": "no_such"}),
        api.operator.post("/api/v1/replays", json={"name": "masked", "error": f"password='{SECRET}'"}),
    ]
    assert all(answer.is_success for answer in done), [answer.text for answer in done]
    # As a command does it, which knows nothing of masks.
    for number, search in enumerate([f"args.password:{SECRET}", f"args.secret.pin:{SECRET}", f'error:"{SPOKEN}"']):
        api.client.save_search(f"secret {number}", search)
    api.db.execute("INSERT INTO workers (id, host, pid, version, capacity) VALUES ('w1', 'here', 1, '0', 1)")
    groups = api.viewer.get("/api/v1/dead-letters/groups").json()["groups"]
    return {
        "task_id": list(tasks.values()),
        "flow_id": [flow],
        "name": ["nightly", "masked"],
        "queue": ["default"],
        "id": ["w1"],
        "replay_id": [done[-1].json()["id"]],
        "fingerprint": [group["fingerprint"] for group in groups],
    }


def answer_to(api: Api, caller: str, path: str) -> str:
    """The answer, or how a stream begins."""
    headers = {} if path.startswith("/api") else {"Accept": "text/html"}
    with getattr(api, caller).stream("GET", path, headers=headers) as answer:
        assert answer.status_code < 500, path
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            return str(answer.read().decode())
        return str(next(answer.iter_text())) if answer.is_success else ""


def test_no_page_and_no_answer_shows_a_secret(api: Api) -> None:
    names, tried, escapes = fill(api), 0, list[object]()
    for route in routes():
        if route.methods != {"GET"} or route.path.startswith(("/internal/", "/assets/")):
            continue
        known = [names.get(parameter, ["none"]) for parameter in route.param_convertors]
        for values in product(*known):
            path = route.path_format.format(**dict(zip(route.param_convertors, values, strict=True)))
            for query, caller in product(QUERIES.get(route.path_format, [""]), CALLERS):
                if route.path_format.endswith("/result") and caller == "ann":
                    continue  # she is given what her task returned
                tried += 1
                if SECRET in answer_to(api, caller, f"{path}?{query}"):
                    escapes.append((caller, path, query))
    assert escapes == []
    assert tried > 300


def test_a_result_is_masked_by_what_its_task_hides(api: Api) -> None:
    """Though the error and the result come without the arguments."""
    api.clear()
    task_id = filled(api, "dead_letter")
    shown = api.viewer.get(f"{TASKS}/{task_id}/result").json()
    assert f"refused {MASK}" in shown["error"]["traceback"]
    assert SECRET not in str(shown)


@pytest.mark.parametrize(
    "search", [f"args.password:{SECRET}", "tag:api_key=x", f'error:"{SPOKEN}"', f'args.note:"{SPOKEN}"']
)
def test_a_search_for_a_masked_value_is_not_saved(api: Api, search: str) -> None:
    problem = refused(
        api.operator.put("/api/v1/searches", json={"name": "mine", "search": search}), 422, "invalid_option"
    )
    assert SECRET not in problem["detail"]
    assert api.operator.put("/api/v1/searches", json={"name": "mine", "search": "args.user:ada"}).is_success


@pytest.mark.parametrize("caller", ["viewer", "ann", "operator"])
def test_a_masked_part_of_an_error_can_not_be_guessed_by_searching_errors(api: Api, caller: str) -> None:
    """Else it could be found character by character."""
    api.clear()
    task_id = filled(api, "dead_letter")
    finds = caller == "operator"
    for text in ("word='hunt", "ada:hunter2", "d='hunt*s'", "cookie-of"):
        dead = getattr(api, caller).get("/api/v1/dead-letters", params={"error": text.replace("*", "")})
        assert (task_id in dead.text) == (finds and "*" not in text), text
        groups = getattr(api, caller).get("/api/v1/dead-letters/groups", params={"error": text.replace("*", "")})
        assert bool(groups.json()["groups"]) == (finds and "*" not in text), text
        page = getattr(api, caller).get("/tasks/export", params={"q": f"error:{text}", "format": "json"})
        assert (task_id in page.text) == finds, text
        without = getattr(api, caller).get("/tasks/export", params={"q": f"-error:{text}", "format": "json"})
        assert (task_id in without.text) == (not finds), text
    for text in ("ValueError", "was refused", "login(user", "postgresql://ada"):
        assert task_id in getattr(api, caller).get("/api/v1/dead-letters", params={"error": text}).text, text
        found = getattr(api, caller).get("/tasks/export", params={"q": f'error:"{text}"', "format": "json"})
        assert task_id in found.text, text


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2 end",
        "PGPASSWORD='a hunter2 c' psql end",
        '{"api-key": "x hunter2", "n": 1} end',
        "{'accessToken': 'x\\'hunter2', 'n': 1} end",
        "Authorization: Bearer hunter2.def end",
        "?api_key=hunter2&page=2 end",
        "redis://:pa@hunter2@host/0 or amqp://u:hunter2@h end",
        "private key => hunter2, end",
        "the password was wrong, end",
    ],
)
def test_postgresql_masks_in_errors_what_python_masks(api: Api, text: str) -> None:
    row = api.db.execute(r"SELECT regexp_replace(%s, %s, '\1\2***', 'gi')", [text, REDACTION.pattern]).fetchone()
    assert row is not None
    assert "hunter2" not in row[0]
    assert row[0].endswith("end")
    assert row[0].replace("***", MASK) == REDACTION.text(text)
