"""The SQL files: a folder for each subject, fragments marked as such, nothing unused, nothing twice."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import psycopg
import pytest

import tasklib
from tasklib import Config
from tasklib.client.schedule_sync import template_of
from tasklib.client.submissions import Defaults
from tasklib.migrations import migrate
from tasklib.sql import fragments, numbered, statement, statements
from tasklib.tasks.options import NOTHING_SAID

PACKAGE = Path(tasklib.__file__).parent
SQL = PACKAGE / "sql"
FILES = sorted(SQL.rglob("*.sql"))
INCLUDED = {file: set(re.findall(r"\{include (\w+)\}", file.read_text())) for file in FILES}


def subject(file: Path) -> str:
    """The folder of a statement or fragment; empty if several subjects share it."""
    folders = file.relative_to(SQL).parts[:-1]
    return folders[0] if folders[0] != "fragments" else ""


def code_of(subject: str) -> list[Path]:
    """The modules that may run the statements of a subject."""
    module = PACKAGE / "store" / f"{subject}.py"
    return [module] if module.exists() else sorted((PACKAGE / "testing").glob("*.py")) if subject == "testing" else []


def names_in(module: Path) -> set[str]:
    tree = ast.walk(ast.parse(module.read_text()))
    return {node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)}


OLDER = "_before_18"
"""Ends the names of fragments for older servers, each in the place of another."""


def users_of(fragment: str) -> set[str]:
    """The subjects whose statements have this fragment in them, directly or in another fragment."""
    users = [file for file in FILES if fragment.removesuffix(OLDER) in INCLUDED[file]]
    return {s for f in users for s in (users_of(f.stem) if f.stem in fragments() else {subject(f)})}


def test_every_name_is_used_once() -> None:
    assert [name for name, count in Counter(file.stem for file in FILES).items() if count > 1] == []
    assert {*statements(), *fragments()} == {file.stem for file in FILES}


def test_a_file_is_in_the_folder_of_a_subject_or_in_fragments() -> None:
    odd = [f for f in FILES if not re.fullmatch(r"\w+/\w+\.sql|\w+/fragments/\w+\.sql", str(f.relative_to(SQL)))]
    assert odd == []


def test_every_fragment_is_included_somewhere_and_nothing_else_is() -> None:
    assert set().union(*INCLUDED.values()) == {name for name in fragments() if not name.endswith(OLDER)}
    assert {name.removesuffix(OLDER) for name in fragments() if name.endswith(OLDER)} < fragments().keys()


def test_a_fragment_is_in_the_subject_that_uses_it_or_shared_by_several() -> None:
    where = {name: subject(Path(str(file))) for name, file in fragments().items()}
    assert where == {name: (users.pop() if len(users := users_of(name)) == 1 else "") for name in where}


def test_every_statement_is_run_by_the_module_of_its_subject() -> None:
    unused = {
        name
        for name, file in statements().items()
        if not any(name in names_in(module) for module in code_of(subject(Path(str(file)))))
    }
    assert unused == set()


def test_a_fragment_is_no_statement_and_a_statement_no_fragment() -> None:
    for name in fragments():
        with pytest.raises(KeyError):
            statement(name, None)


def test_no_mark_is_left_in_a_statement() -> None:
    for name in statements():
        for before_18 in (False, True):
            text = statement(name, None, before_18=before_18)
            assert not re.search(r"\{[a-z][a-z_.]*( \w+)?\}", text), name


INSERTED = re.compile(r"(?:INSERT INTO|COPY) tasks \(([^)]*)\)")
PLAIN_ONLY = {"scheduled_at", "payload_version", "key_id"}
"""COPY takes only tasks that are due at once, have no version and are not sealed."""
SIMPLE_ONLY = PLAIN_ONLY | {"tags", "required_capabilities", "trace_context", "submitted_by", "lane"}
"""Simple tasks leave these unsaid: see `SubmitTerms.is_simple`."""
OF_RUNS = {"scheduled_at", "trace_context", "submitted_by", "lane", "key_id"}
"""A run of a schedule is not submitted by a caller, may begin at once, has no share or serial key, is not sealed."""
TEXTS = {name: statement(name, None) for name in statements()}


def columns_of(name: str) -> set[str]:
    """The columns of tasks that a statement inserts."""
    found = INSERTED.search(TEXTS[name])
    return set(re.findall(r"\w+", found[1])) if found else set()


def test_every_way_to_insert_tasks_stores_what_a_submission_says() -> None:
    """An option that one statement forgets would be lost for the tasks of flows, merged ones or large batches."""
    stored = {name: columns for name in TEXTS if (columns := columns_of(name))}
    assert len(stored) >= 12
    said = stored["submit"]
    missing = {name: said - columns for name, columns in stored.items() if not columns >= said}
    assert missing.pop("submit_copy") == PLAIN_ONLY
    assert missing.pop("submit_simple") == missing.pop("submit_copy_simple") == SIMPLE_ONLY
    lost = {name: columns - (OF_RUNS if "schedule" in name else set()) for name, columns in missing.items()}
    assert {name: columns for name, columns in lost.items() if columns} == {}


def test_a_submission_that_replaces_a_task_replaces_all_that_it_says() -> None:
    changed = re.search(
        r"changed AS \(\s*UPDATE tasks AS task\s+SET (.*?)\s+FROM waiting", TEXTS["submit_replacing"], re.S
    )
    assert changed is not None
    # What makes it the same task stays.
    said = columns_of("submit") - {"id", "name", "submitted_by"}
    assert said - set(re.findall(r"(?:^|,\n)\s*(\w+) = ", re.sub(r"--.*", "", changed[1]))) == set()


def test_the_runs_of_a_schedule_get_what_its_options_say() -> None:
    """What their statements read of the template is in it, and is what a submission stores."""
    read = {name: set(re.findall(r"template ->>? '(\w+)'", text)) for name, text in TEXTS.items()}
    runs = {name: names for name, names in read.items() if columns_of(name) and names}
    assert runs.keys() == {"schedule_fire", "schedule_run", "schedule_run_one_by_one"}
    terms = Defaults(Config("postgresql://")).terms("report", NOTHING_SAID)
    template = set(template_of(terms, {}))
    for names in runs.values():
        assert names | ({"priority"} & template) == template
    assert template == columns_of("submit") - OF_RUNS - {"id", "name"}


def test_no_statement_answers_with_an_array_of_a_domain(config: Config, db: psycopg.Connection) -> None:
    """A driver reads a domain as what is behind it, but an array of one as text."""
    migrate(config)
    described = 0
    arrays = {oid for (oid,) in db.execute("SELECT typarray FROM pg_type WHERE typtype = 'd'")}
    for name in sorted(statements()):
        text, _ = numbered(name, None, before_18=db.info.server_version < 180000)
        db.pgconn.prepare(name.encode(), text.encode())
        answer = db.pgconn.describe_prepared(name.encode())
        found = [answer.fname(i) for i in range(answer.nfields) if answer.ftype(i) in arrays]
        assert not found, (name, found)
        described += answer.status == psycopg.pq.ExecStatus.COMMAND_OK
    assert described > len(statements()) - 20  # others need the types of their parameters
