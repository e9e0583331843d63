"""SQL, and what else might be taken for more than text, in every filter, sort field, path and body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tasklib import Config
from tasklib.server.app import create_app
from tasklib.server.openapi import document
from tests.server.api import Api

HOSTILE = [
    "' OR '1'='1",
    "'; DROP TABLE tasks; --",
    "x' UNION SELECT hash::text FROM api_tokens --",
    "1); DELETE FROM tasks; --",
    "$$; SELECT pg_sleep(60); $$",
    "%s %(id)s {schema.}",
    "\\'; --",
    "created_at; DROP TABLE tasks",
    "../../etc/passwd",
    "%",
    "_",
    "\x00",
    "\udcff",
    "é" * 2000,
    "{{7*7}}${7*7}<script>alert(1)</script>",
]
DOCUMENT = document(create_app(Config("postgresql://nobody@nowhere/nothing")))


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if path.startswith("/api/"):
                yield method.upper(), path, operation


def hostile_requests(method: str, path: str, operation: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """The text in every place where an operation takes something: parameters one by one, members of a body likewise."""
    quoted = quote(text.encode("utf-8", "surrogateescape"), safe="")
    for parameter in operation.get("parameters", ()):
        name, place = parameter["name"], parameter["in"]
        if place == "path":
            yield {"url": path.replace(f"{{{name}}}", quoted)}
        elif place == "query":
            yield {"url": f"{_filled(path)}?{name}={quoted}"}
        elif place == "header" and text.isprintable() and text.isascii():
            yield {"url": _filled(path), "headers": {name: text}}
    for member in _members(operation):
        for value in (text, [text], {text: [text]}):
            yield {"url": _filled(path), "content": json.dumps({**_required(operation), member: value})}


def _filled(path: str) -> str:
    for name in ("task_id", "worker_id", "id_or_prefix"):
        path = path.replace(f"{{{name}}}", "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f")
    return path


def _schema(operation: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    schema: dict[str, Any] = DOCUMENT["components"]["schemas"].get(name, {})
    return schema


def _members(operation: dict[str, Any]) -> list[str]:
    return list(_schema(operation).get("properties", {}))


def _required(operation: dict[str, Any]) -> dict[str, Any]:
    """A body that is good but for what is put into it."""
    examples = _schema(operation).get("examples") or [{}]
    return {k: v for k, v in examples[0].items() if k in _schema(operation).get("required", ())}


@pytest.mark.parametrize(("method", "path", "operation"), list(operations()), ids=lambda part: str(part)[:60])
def test_text_is_only_ever_text(method: str, path: str, operation: dict[str, Any], api: Api) -> None:
    task_id = api.submit(task_type="injection-any", tags={"a": "b"})
    sent = 0
    for text in HOSTILE:
        for request in hostile_requests(method, path, operation, text):
            headers = {"Content-Type": "application/json", **request.pop("headers", {})}
            answer = api.admin.request(method, **request, headers=headers)
            sent += 1
            assert answer.status_code < 500, (request, answer.text)
            assert "injection-any" not in answer.text or method == "POST", (request, answer.text)
            assert "password" not in answer.text.lower().replace("etc/passwd", "")
    has_input = operation.get("parameters") or _members(operation)
    assert sent > 10 or not has_input
    assert api.db.execute("SELECT count(*) FROM tasks WHERE id = %s", [task_id]).fetchone() == (1,)
