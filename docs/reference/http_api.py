"""The HTTP API for the reference: the OpenAPI document as a file, and its operations and models as Markdown."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tasklib.config import Config
from tasklib.server.app import create_app
from tasklib.server.openapi import document

DOCUMENT = "openapi.json"
_METHODS = ("get", "post", "put", "patch", "delete")


@cache
def _document() -> dict[str, Any]:
    # Nothing is connected to: the application is only looked at.
    return document(create_app(Config("host=nowhere")))


def text() -> str:
    """The document as it is committed."""
    return json.dumps(_document(), indent=1, ensure_ascii=False) + "\n"


def operations() -> str:
    """Every operation under its tag, with what it is told and what it answers."""
    found = [
        (path, method, item[method])
        for path, item in _document()["paths"].items()
        for method in _METHODS
        if method in item
    ]
    tags = list(dict.fromkeys(tag for _, _, operation in found for tag in operation["tags"]))
    parts = []
    for tag in tags:
        parts.append(f"## {tag.capitalize()}")
        parts += [_operation(path, method, o) for path, method, o in found if tag in o["tags"]]
    return "\n\n".join(parts)


def models() -> str:
    """Every body and answer with its fields, and one example."""
    schemas = _document()["components"]["schemas"]
    return "\n\n".join(_model(name, schema) for name, schema in schemas.items() if "properties" in schema)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"### {operation['summary']}", f"`{method.upper()} {path}`", _paragraphs(operation.get("description", ""))]
    if parameters := operation.get("parameters"):
        rows = [_row(p["name"], p["schema"], p.get("description", ""), p["in"]) for p in parameters]
        parts.append("\n".join(["| parameter | in | type | |", "|---|---|---|---|", *rows]))
    if body := operation.get("requestBody"):
        parts.append(f"Body: {_type(_schema(body))}")
    parts.append(_answers(operation["responses"]))
    return "\n\n".join(part for part in parts if part)


def _answers(responses: dict[str, Any]) -> str:
    good = [
        f"{status}{f' {_type(_schema(r))}' if 'content' in r else ''}"
        f"{'' if r['description'] == 'Successful Response' else ': ' + r['description']}"
        for status, r in responses.items()
        if status < "4"
    ]
    refused = [status for status in responses if status >= "4"]
    return "\n".join([*(f"- Answers {g}" for g in good), f"- Refuses with {', '.join(refused)}"])


def _schema(holder: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = next(iter(holder["content"].values())).get("schema", {})
    return schema


def _model(name: str, schema: dict[str, Any]) -> str:
    parts = [f"### {name}", _paragraphs(schema.get("description", ""))]
    required = schema.get("required", ()) if name.endswith("Body") else ()
    rows = [
        f"| `{field}`{' (required)' if field in required else ''} | {_type(s)} | {_cell(s.get('description', ''))} |"
        for field, s in schema["properties"].items()
    ]
    parts.append("\n".join(["| field | type | |", "|---|---|---|", *rows]))
    if examples := schema.get("examples"):
        parts.append(f"```json\n{json.dumps(examples[0], indent=2, ensure_ascii=False)}\n```")
    return "\n\n".join(part for part in parts if part)


def _row(name: str, schema: dict[str, Any], description: str, place: str) -> str:
    # A parameter is left out, not null.
    return f"| `{name}` | {place} | {_type(schema).removesuffix(' or null')} | {_cell(description)} |"


def _type(schema: dict[str, Any]) -> str:
    """A type in words: `integer or null`, `list of TaskAnswer`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        target = _document()["components"]["schemas"][name]
        return f"[{name}](#{name.lower()})" if "properties" in target else _type(target)
    if "enum" in schema:
        return " / ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(part) for part in schema["anyOf"]))
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object":
            inner = schema.get("additionalProperties")
            return f"object of {_type(inner)}" if isinstance(inner, dict) and inner else "object"
        case "string":
            return {"uuid": "UUID", "date-time": "time"}.get(schema.get("format", ""), "string")
        case None:
            return "anything"
    return str(schema["type"])


def _paragraphs(description: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in description.split("\n\n"))


def _cell(description: str) -> str:
    return " ".join(description.split()).replace("|", "\\|")
