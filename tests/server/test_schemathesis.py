"""Whatever the OpenAPI document allows or forbids is sent by everybody: no 500, and no answer it doesn't know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tasklib import Client, Config
from tasklib.server.app import create_app
from tasklib.server.openapi import document
from tasklib.store.tokens import Role
from tasklib.testing import databases
from tests.server.conftest import PATIENCE, bearer, running

pytestmark = pytest.mark.long

EXAMPLES = 5
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENT = document(create_app(Config("postgresql://nobody@nowhere/nothing")))
OPERATIONS: list[Any] = [found.ok() for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()]


@dataclass
class Callers:
    """Everybody: without a token, with one of each role, and on a server that asks for none."""

    everybody: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    session: requests.Session = field(default_factory=requests.Session)
    finished_task: Callable[[], str] = str


@pytest.fixture(scope="module")
def callers(server_url: str, template_database: str) -> Iterator[Callers]:
    made = Callers()
    with ExitStack() as stack:
        locked, unlocked = (
            Config(stack.enter_context(databases.database(server_url, template_database))) for _ in range(2)
        )
        client = stack.enter_context(Client(locked))
        tokens = {role.value: client.create_token(role.value, roles=[role]).text for role in Role}
        url, open_url = (str(stack.enter_context(running(c, max_wait_seconds=0.01))) for c in (locked, unlocked))
        made.everybody = {
            "nobody": (url, {}),
            **{role: (url, bearer(text)) for role, text in tokens.items()},
            "anonymous": (open_url, {}),
        }
        made.finished_task = lambda: _finished(client)
        stack.enter_context(made.session)
        yield made


def _finished(client: Client) -> str:
    task_id = client.submit_task("schemathesis_any", registered_elsewhere=True)
    client.cancel_task(task_id)
    return str(task_id)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_answer_is_one_that_the_document_knows(operation: Any, mode: GenerationMode, callers: Callers) -> None:
    task_id = callers.finished_task()

    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_known=st.booleans())
    def check(case: Any, is_known: bool) -> None:
        if is_known and "task_id" in (case.path_parameters or {}):
            case.path_parameters["task_id"] = task_id
        for name, (url, headers) in callers.everybody.items():
            if name == "anonymous" and operation.label == "POST /api/v1/tokens":
                continue  # the first token would lock its server
            answer = case.call(base_url=url, headers=headers, session=callers.session, timeout=PATIENCE)
            case.validate_response(answer, checks=CHECKS, headers=headers)
            if name == "nobody" and operation.definition.raw.get("x-roles"):
                assert answer.status_code in (401, 404, 405), answer.status_code

    try:
        check()
    except Unsatisfiable:  # it takes nothing, so nothing about it can be wrong
        assert mode is GenerationMode.NEGATIVE
        assert not operation.definition.raw.get("parameters")
