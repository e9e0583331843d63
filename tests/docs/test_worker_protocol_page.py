"""worker-protocol.md names the keys, defaults and terms of the models that the server reads and writes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel

from tasklib import Config
from tasklib.backends.postgres.remote.polls import MOST_TASKS
from tasklib.server.settings import ServerSettings
from tasklib.server.worker_models import (
    PROTOCOL,
    ClaimedTask,
    HeartbeatAnswer,
    HeartbeatBody,
    PollAnswer,
    PollBody,
    RegisterAnswer,
    RegisterBody,
    ResultBody,
)
from tests.docs.pages import ROOT, Page

PAGE = Page(ROOT / "docs/reference/worker-protocol.md")


def _section(heading: str) -> str:
    return PAGE.text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _example(*keys: str) -> Any:
    found = [json.loads(b.code) for b in PAGE.blocks if b.language == "json" and f'"{keys[0]}"' in b.code]
    return found[0]


@pytest.mark.parametrize(
    ("heading", "model"),
    [("Register", RegisterBody), ("Poll", PollBody), ("Heartbeat", HeartbeatBody), ("Result", ResultBody)],
)
def test_every_key_of_a_request_is_on_the_page_with_its_default(heading: str, model: type[BaseModel]) -> None:
    table = _section(heading).partition("| key | default |")[2].partition("\n\n")[0]
    documented = {}
    for row in table.splitlines()[2:]:
        _, names, default, *_ = (cell.strip() for cell in row.split("|"))
        documented |= dict.fromkeys(re.findall(r"`(\w+)`", names), default)
    actual = {}
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        plain = json.dumps(int(default) if isinstance(default, float) else default) if not field.is_required() else ""
        actual[name] = "required" if field.is_required() else plain.strip('"')
    assert {name: default.strip('`"') for name, default in documented.items()} == actual


def test_answers_are_shown_with_all_their_keys() -> None:
    assert _example("worker_id").keys() == RegisterAnswer.model_fields.keys()
    polled = _example("waited_seconds")
    assert polled.keys() == PollAnswer.model_fields.keys()
    assert polled["tasks"][0].keys() == ClaimedTask.model_fields.keys()
    assert _example("acknowledged").keys() == HeartbeatAnswer.model_fields.keys()


def test_the_terms_that_are_shown_are_the_defaults() -> None:
    config, server = Config("postgresql://"), ServerSettings()
    assert {k: v for k, v in _example("worker_id").items() if k not in ("worker_id", "queues", "server_version")} == {
        "protocol": PROTOCOL,
        "lease_seconds": config.lock_timeout_seconds,
        "heartbeat_interval_seconds": config.heartbeat_interval_seconds,
        "heartbeat_timeout_seconds": config.heartbeat_timeout_seconds,
        "poll_interval_ms": config.poll_interval_seconds * 1000,
        "max_wait_seconds": server.max_wait_seconds,
        "max_tasks": MOST_TASKS,
        "max_batch": server.max_batch,
        "max_body_bytes": server.max_body_bytes,
        "max_payload_bytes": config.max_payload_bytes,
    }
    assert f"nested deeper than the server allows ({server.max_depth})" in PAGE.text
    assert f"{config.max_error_bytes // 1024} KiB (`max_error_bytes`)" in PAGE.text
