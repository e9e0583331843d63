"""The OpenAPI document says everything: whom an operation serves, what it takes, answers and refuses, with examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from tasklib import Config
from tasklib.server import fleet_response_models, flow_models, request_models, response_models
from tasklib.server.app import create_app
from tasklib.server.openapi import document

APP = create_app(Config("host=nowhere"))
DOCUMENT = document(APP)
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}
SCHEMAS = DOCUMENT["components"]["schemas"]
PUBLIC = {key: operation for key, operation in OPERATIONS.items() if " /api/" in key}


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"]
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _content(holder: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = next(iter(holder["content"].values()))
    return content


def _has_example(content: dict[str, Any]) -> bool:
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    return "example" in content or bool(SCHEMAS.get(name, {}).get("examples"))


@pytest.mark.parametrize("key", PUBLIC)
def test_every_operation_is_complete(key: str) -> None:
    operation = PUBLIC[key]
    assert operation["summary"]
    assert operation["description"]
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", operation["operationId"]), "named by hand, so that it stays"
    assert operation["security"] == [{"token": []}]
    assert operation["x-roles"]
    assert {"401", "403", "429", "503"} <= operation["responses"].keys()
    if "requestBody" in operation:
        assert {"400", "408", "413", "415", "422"} <= operation["responses"].keys()
        assert _has_example(_content(operation["requestBody"]))
    if "{task_id}" in key or "{flow_id}" in key or "{worker_id}" in key or "{id_or_prefix}" in key:
        assert "404" in operation["responses"]
    for status, response in operation["responses"].items():
        assert response["description"]
        if status >= "4":
            assert list(response["content"]) == ["application/problem+json"]
        elif status != "204":
            assert _has_example(_content(response)), f"{status} has no example"


def test_operation_ids_are_unique_and_references_lead_somewhere() -> None:
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)
    for reference in set(_references(DOCUMENT)):
        assert reference.rpartition("/")[2] in SCHEMAS, reference
    assert not [name for name in SCHEMAS if "__" in name], "two models share a name"


@pytest.mark.parametrize("module", [request_models, response_models, fleet_response_models, flow_models])
def test_every_example_is_valid(module: Any) -> None:
    for model in vars(module).values():
        if isinstance(model, type) and issubclass(model, BaseModel) and model is not BaseModel:
            for example in model.model_json_schema().get("examples", ()):
                model.model_validate(example)


def test_the_server_serves_its_document(server: Any, config: Config) -> None:
    running = server(config)
    assert running.http.get("/openapi.json").json() == DOCUMENT
