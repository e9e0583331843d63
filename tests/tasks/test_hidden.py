"""`Hidden[...]`: stored as it is, marked, masked where it is shown."""

from __future__ import annotations

import json
from typing import Any

from tasklib import Config, Hidden, Task, task
from tasklib.client.submissions import Defaults, new_tasks
from tasklib.server.redaction import Redaction
from tasklib.tasks.masking import MASK
from tasklib.tasks.secrets import hidden


def test_a_hidden_argument_is_marked_in_the_row_and_reaches_the_function_as_it_is() -> None:
    @task
    def log_in(user: str, pin: Hidden[str], codes: Hidden[list[int]] | None = None) -> None: ...

    given = {"user": "ann", "pin": "4711", "codes": [1, 2]}
    stored = log_in.arguments.to_json(given)
    assert json.loads(stored) == {"user": "ann", "pin": {"$secret": "4711"}, "codes": {"$secret": [1, 2]}}
    assert log_in.arguments.from_json(stored) == given
    assert log_in.arguments.from_json('{"user": "ann", "pin": "4711"}')["pin"] == "4711"  # from before it was hidden


def test_a_merge_key_that_is_made_of_it_does_not_show_it() -> None:
    @task(unique="pending")
    def log_in(pin: Hidden[str]) -> None: ...

    defaults = Defaults(Config("postgresql://"))
    [made] = new_tasks([log_in.bind("4711")], defaults)
    assert made.terms.merge_key is not None
    assert "4711" not in made.terms.merge_key


def test_commands_and_the_server_mask_it_and_errors_that_quote_it() -> None:
    stored: dict[str, Any] = {"user": "ann", "pin": {"$secret": "4711-0815"}}
    assert "4711" not in json.dumps(hidden(stored))
    shown = Redaction(["secret"]).task(Task(name="log_in", kwargs=stored, error="ValueError: no 4711-0815"))
    assert "4711" not in json.dumps(shown.kwargs)
    assert shown.error == f"ValueError: no {MASK}"
