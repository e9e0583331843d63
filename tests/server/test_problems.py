"""Errors as problem details with stable codes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import Config, errors
from tasklib.server.problems import KNOWN, problem_of
from tests.docs.pages import ROOT
from tests.server.conftest import Running
from tests.server.extra_routes import router


def test_a_problem_has_the_members_of_the_standard_and_a_code(server: Callable[..., Running], config: Config) -> None:
    answer = server(config, router).http.get("/api/test/teapot")
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body.pop("request_id") == answer.headers["X-Request-ID"]
    assert body == {
        "type": "urn:tasklib:problem:teapot",
        "title": "I am one",
        "status": 418,
        "detail": "Short and stout.",
        "code": "teapot",
        "spout": "here",
    }


def test_unknown_paths_and_methods_are_problems_too(server: Callable[..., Running], config: Config) -> None:
    url = server(config, router)
    assert url.http.get("/nowhere").json()["code"] == "not_found"
    assert url.http.get("/health/live/").status_code == 404
    answer = url.http.delete("/health/live")
    assert (answer.status_code, answer.json()["code"], answer.headers["Allow"]) == (405, "method_not_allowed", "GET")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.TaskNotFound.with_id(uuid4()), 404, "task_not_found"),
        (errors.TaskNotFound.named("mial", ["mail"]), 422, "unknown_task_type"),
        (errors.WorkerNotFound("none", worker_id="w"), 404, "worker_not_found"),
        (errors.TokenNotFound("x"), 404, "token_not_found"),
        (errors.ScheduleNotFound("x"), 404, "schedule_not_found"),
        (errors.FlowNotFound(uuid4()), 404, "flow_not_found"),
        (errors.ReplayNotFound(uuid4()), 404, "replay_not_found"),
        (errors.TaskNotEditable("no", uuid4()), 409, "task_not_editable"),
        (errors.IdempotencyKeyTaken("mail", "k"), 409, "idempotency_key_taken"),
        (errors.TaskExecutionError("no", task="t", field="f"), 422, "invalid_arguments"),
        (errors.InvalidOption("no"), 422, "invalid_option"),
        (errors.KeyMissing("a"), 422, "key_missing"),
        (errors.PayloadDamaged("pay", "x", "kwargs"), 422, "payload_damaged"),
        (errors.SchemaError("old"), 503, "schema_not_current"),
        (errors.DatabaseUnavailable("postgresql://secret"), 503, "database_unavailable"),
        (psycopg.OperationalError("gone"), 503, "database_unavailable"),
        (psycopg.errors.AdminShutdown("gone"), 503, "database_unavailable"),
        (psycopg.DataError("a NUL"), 422, "not_storable"),
        (psycopg.errors.UndefinedTable("what"), 500, "internal_error"),
        (RuntimeError("secret"), 500, "internal_error"),
        (errors.ConfigError("secret"), 500, "internal_error"),
    ],
)
def test_each_error_has_its_answer(error: Exception, status: int, code: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.code) == (status, code)
    assert "secret" not in problem.detail
    assert ("Retry-After" in problem.headers) == (code == "database_unavailable")


def test_every_code_is_documented_with_its_status() -> None:
    page = (ROOT / "docs/reference/http-errors.md").read_text()
    documented = {code: int(status) for code, status in re.findall(r"^\| `(\w+)` \| (\d{3}) \|", page, re.MULTILINE)}
    assert documented == {code: known.status for code, known in KNOWN.items()}


def test_every_code_in_the_sources_is_known() -> None:
    used: dict[str, Any] = {}
    for file in Path(ROOT / "src/tasklib/server").rglob("*.py"):
        text = file.read_text()
        for status, code in re.findall(r'Problem\(\s*(\d{3}),\s*"(\w+)"', text):
            used[code] = int(status)
    assert used
    for code, status in used.items():
        assert code in KNOWN, f"{code} is missing in KNOWN and docs/reference/http-errors.md"
        assert KNOWN[code].status == status
