"""The reference is complete and current: every setting, command, name, error, column, index and constraint."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import errors
from tasklib.columns import TASK_COLUMNS
from tasklib.embedded import EmbeddedPostgresError
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs/reference"
ATTRIBUTES = {"task_id", "name", "key", "field", "task", "state", "remote_traceback", "id_or_prefix"}


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that writes the generated parts."""
    monkeypatch.syspath_prepend(REFERENCE)
    yield importlib.import_module("generate")
    del sys.modules["generate"], sys.modules["http_api"]


@pytest.mark.parametrize("page", ["configuration.md", "cli.md", "http-errors.md", "http-api.md", "openapi.json"])
def test_generated_parts_are_current(page: str, generate: Any) -> None:
    assert (REFERENCE / page).read_text() == generate.written_anew(page), "run: python docs/reference/generate.py"


def _section(name: str) -> str:
    """The part of api.md below the heading that has this name."""
    text = (REFERENCE / "api.md").read_text()
    match = re.search(rf"^###? [^\n]*`{name}`.*?(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
    assert match, f"api.md has no heading with `{name}`"
    return match[0]


# The errors have a page of their own.
@pytest.mark.parametrize("name", sorted(set(tasklib.__all__) - set(errors.__all__)))
def test_every_public_name_is_in_the_api_reference_with_its_parameters(name: str) -> None:
    section = _section(name)
    described = getattr(tasklib, name)
    # Config has a page of its own; the others are not made by calling them.
    if name in (
        "Config",
        "Hidden",
        "PayloadStore",
        "Sealed",
        "SubmitOptions",
        "SyncTaskId",
        "Task",
        "TaskFunction",
        "TaskId",
        "TaskState",
        "sync",
    ):
        return
    parameters = inspect.signature(described).parameters.values()
    for parameter in parameters:
        if parameter.name not in ("self", "args", "arguments", "function") and not parameter.name.startswith("_"):
            assert re.search(rf"\b{parameter.name}\b", section), f"{name}: nothing about {parameter.name}"


@pytest.mark.parametrize("name", ["AsyncClient", "Client", "TaskContext", "TaskFunction", "TaskId", "Worker", "Config"])
def test_every_public_member_is_in_the_api_reference(name: str) -> None:
    section = _section(name)
    if name == "AsyncClient":
        section += _section("Client")
    members = [m for m, value in vars(getattr(tasklib, name)).items() if not m.startswith("_") and callable(value)]
    inner = {"perform", "cancel", "channel"}
    for member in set(members) - inner:
        assert f"`{member}" in section or f".{member}" in section, f"{name}: nothing about {member}"


def test_every_error_is_in_the_reference_with_its_attributes() -> None:
    text = (REFERENCE / "errors.md").read_text()
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.TaskLibError)]
    for error in [*classes, EmbeddedPostgresError]:
        rows = [line for line in text.splitlines() if f"`{error.__name__}`" in line]
        assert rows, f"errors.md does not mention {error.__name__}"
        for base in error.__bases__:
            if base not in (errors.TaskLibError, Exception):
                assert any(f"`{base.__name__}`" in row for row in rows), f"{error.__name__} is also a {base.__name__}"
        for attribute in ATTRIBUTES & inspect.signature(error.__init__).parameters.keys():
            assert any(f"`{attribute}`" in row for row in rows), f"{error.__name__} has the attribute {attribute}"


# ---- the table ----

_COLUMNS = """
SELECT attname, format_type(COALESCE(NULLIF(typbasetype, 0), atttypid), atttypmod), attnotnull,
       pg_get_expr(adbin, adrelid)
FROM pg_attribute
JOIN pg_type ON pg_type.oid = atttypid
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = %s::regclass AND attnum > 0
ORDER BY attnum
"""


def _rows(heading: str) -> list[list[str]]:
    """The first table below a heading of table.md, without its head."""
    below = (REFERENCE / "table.md").read_text().partition(f"## {heading}\n")[2]
    lines = below[below.index("\n|") :].strip().partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("table", "heading"), [("tasks", "Columns"), ("api_tokens", "API tokens"), ("audit", "Audit")])
def test_every_column_is_in_the_reference_with_its_type_and_default(
    table: str, heading: str, db: psycopg.Connection
) -> None:
    documented = [(name.strip("`"), kind.strip("`"), default) for name, kind, default, _ in _rows(heading)]
    actual: list[tuple[str, str, str]] = []
    for name, kind, required, default in db.execute(_COLUMNS, [table]):
        short = kind.replace("timestamp with time zone", "timestamptz")
        plain = re.sub(r"::[\w\[\]]+(?: COLLATE \"C\")?", "", default) if default else None
        actual.append((name, short, f"`{plain}`" if plain else "required" if required else "null"))
    if table == "tasks":  # the order of the model, which is for readers
        actual.sort(key=lambda row: TASK_COLUMNS.index(row[0]))
    assert documented == actual


def test_every_index_is_in_the_reference(db: psycopg.Connection) -> None:
    documented = {name.strip("`"): columns for name, columns, _ in _rows("Indexes")}
    actual = dict(db.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'tasks'").fetchall())
    assert documented.keys() == actual.keys()
    for name, definition in actual.items():
        in_one_line = re.sub(r"\s+", " ", definition).replace("( ", "(").replace("::text", "")
        columns = re.search(r"USING btree \((.*?)\)(?: WHERE|$)", in_one_line)
        assert columns, definition
        assert columns[1] in documented[name]
        assert ("unique" in documented[name]) == (" UNIQUE " in definition and name != "tasks_pkey")


def test_every_domain_is_in_the_reference_with_its_columns(db: psycopg.Connection) -> None:
    documented = {
        domain.strip("`"): (sorted(re.findall(r"`(\w+)`", columns)), rule.strip("`"))
        for domain, columns, rule, _ in _rows("Domains")
    }
    found = db.execute(
        "SELECT typname, array_agg(attname::text ORDER BY attname), min(conname) FROM pg_attribute "
        "JOIN pg_type ON pg_type.oid = atttypid AND typtype = 'd' JOIN pg_constraint ON contypid = pg_type.oid "
        "WHERE attrelid = 'tasks'::regclass GROUP BY typname"
    )
    assert documented == {domain: (columns, rule) for domain, columns, rule in found}


def test_every_constraint_trigger_and_function_is_in_the_reference(db: psycopg.Connection) -> None:
    checks = db.execute("SELECT conname FROM pg_constraint WHERE conrelid = 'tasks'::regclass AND contype = 'c'")
    assert {row[0].strip("`") for row in _rows("Constraints")} == {row[0] for row in checks}
    triggers = db.execute(
        "SELECT tgname, proname FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid "
        "WHERE tgrelid = 'tasks'::regclass AND NOT tgisinternal"
    )
    documented = [(trigger.strip("`"), function.strip("`()")) for trigger, function, _ in _rows("Triggers")]
    assert {row for row in documented if row[0]} == set(triggers.fetchall())
    functions = db.execute("SELECT proname FROM pg_proc WHERE proname LIKE 'tasklib%'")
    assert {function for _, function in documented} == {row[0] for row in functions}
