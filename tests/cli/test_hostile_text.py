"""Names, arguments and errors that try to command a terminal, forge a line, or become a command when copied."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import structlog
from psycopg.types.json import Jsonb
from rich.console import Console

from tasklib import Client
from tasklib.doctor.run import examine
from tasklib.events import LeasesRescued, TaskEnded, TaskStarted, WorkerStarted
from tasklib.formatting import json_text, printable, shell_option, shell_word
from tasklib.observe.logs import LogLines, log_to
from tasklib.observe.task_logging import configure_task_logging
from tasklib.observe.terminal import TerminalView
from tests.cli.conftest import Run

HARMFUL = "".join(
    map(
        chr,
        [
            *range(1, 0x20),
            *range(0x7F, 0xA0),
            0x200E,
            0x200F,
            *range(0x2028, 0x202F),
            *range(0x2066, 0x206A),
            0xFEFF,
        ],
    )
)
"""C0 (but for NUL, which PostgreSQL refuses), C1, marks of direction, separators of lines and paragraphs."""
FORGED = "\n✓ everything is fine\r\n2026-01-01 completed"
FLOW = "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f"
HOSTILE = f"evil\x1b]0;owned\x07\x9b31m\u202e{HARMFUL}{FORGED}"


def is_harmless(text: str) -> bool:
    """Nothing but printable characters and the line ends of the output itself, and no line of the attacker's."""
    lines = text.split("\n")
    return all(line.isprintable() for line in (line.replace("\t", "") for line in lines)) and not any(
        line.lstrip().startswith(("✓ everything", "2026-01-01 completed")) for line in lines
    )


def insert(db: psycopg.Connection, **columns: Any) -> str:
    names = ", ".join(columns)
    values = ", ".join(["%s"] * len(columns))
    statement = f"INSERT INTO tasks ({names}) VALUES ({values}) RETURNING id::text".encode()
    [(found,)] = db.execute(statement, list(columns.values())).fetchall()
    return str(found)


@pytest.fixture
def hostile(url: str, db: psycopg.Connection) -> dict[str, str]:
    """A task in every state that has hostile text wherever a task can have text, and what else the commands show."""
    text = Jsonb({HOSTILE: HOSTILE})
    history = [{"attempt": 1, "outcome": HOSTILE, "worker": HOSTILE, "error": HOSTILE}]
    common: dict[str, Any] = {
        "name": HOSTILE,
        "queue": HOSTILE,
        "kwargs": text,
        "tags": text,
        "progress": text,
        "idempotency_key": HOSTILE,
        "submitted_by": HOSTILE,
        "required_capabilities": [HOSTILE],
        "history": Jsonb(history),
        # A traceback may have lines of its own, and is shown with them.
        "error": "Traceback\n  " + HOSTILE.replace("\n", "") + "\nValueError: " + HOSTILE.replace("\n", ""),
    }
    db.execute("INSERT INTO workers (id, names, queues, capabilities, version, host) VALUES (%s, %s, %s, %s, %s, %s)",
               [HOSTILE, [HOSTILE], [HOSTILE], [HOSTILE], HOSTILE, HOSTILE])  # fmt: skip
    db.execute("INSERT INTO workers (id, names, version) VALUES ('good', '{x}', '1')")
    made = {"pending": insert(db, **common)}
    without_key = {k: v for k, v in common.items() if k != "idempotency_key"}
    ended = {"completed_at": "now", "started_at": "now"}
    made["completed"] = insert(
        db, **without_key, **ended, state="completed", result=Jsonb({"value": {HOSTILE: HOSTILE}})
    )
    made["dead_letter"] = insert(db, **without_key, **ended, state="dead_letter")
    made["running"] = insert(
        db, **without_key, state="running", started_at="now", locked_until="tomorrow", worker_id=HOSTILE
    )
    with Client(url) as client:
        client.pause(queue=HOSTILE)
        client.pause(name=HOSTILE)
        client.create_schedule(HOSTILE, "@daily", name=HOSTILE, registered_elsewhere=True)
        client.pause_schedule(HOSTILE, HOSTILE)
    db.execute("INSERT INTO flows (id, name) VALUES (%s, %s)", [FLOW, HOSTILE])
    made["of a flow"] = insert(db, name=HOSTILE, flow=FLOW, node=HOSTILE)
    asked = {"title": HOSTILE, "details": {HOSTILE: HOSTILE}, "role": "approver", "form": None}
    made["asking"] = insert(db, name=HOSTILE, scheduled_at="9999-12-01", awaited_signals=[f"approval:{HOSTILE}"])
    db.execute(
        "INSERT INTO steps (task, kind, name, result, token) VALUES (%s, 'approval', %s, %s, 1)",
        [made["asking"], HOSTILE, Jsonb({"value": asked})],
    )
    return made


COMMANDS: dict[str, Callable[[dict[str, str]], list[list[str]]]] = {
    "show": lambda t: [["show", i, *json_] for i in t.values() for json_ in ([], ["--json"])],
    "explain": lambda t: [["explain", i, *json_] for i in t.values() for json_ in ([], ["--json"])],
    "list": lambda t: [["list"], ["list", "--json"], ["list", "--name", HOSTILE]],
    "wait": lambda t: [["wait", t["completed"]], ["wait", t["dead_letter"]]],
    "doctor": lambda t: [["doctor"], ["doctor", "--json"]],
    "flow": lambda t: [
        ["flow", "list"],
        ["flow", "list", "--json"],
        ["flow", "show", FLOW],
        ["flow", "graph", FLOW],
        ["flow", "graph", FLOW, "--format", "dot"],
    ],
    "schedule": lambda t: [
        ["schedule", "list"],
        ["schedule", "list", "--json"],
        ["schedule", "show", HOSTILE],
        ["schedule", "explain", HOSTILE],
        ["schedule", "preview", HOSTILE],
        ["schedule", "delete", HOSTILE],
        ["schedule", "resume", HOSTILE],
    ],
    "approvals": lambda t: [
        ["approvals"],
        ["approvals", "--json"],
        ["approve", t["asking"], "--name", HOSTILE],
        ["reject", t["asking"], "--name", HOSTILE],
    ],
    "workers": lambda t: [["workers"], ["workers", "--json"], ["workers", "drain", HOSTILE]],
    "pauses": lambda t: [
        ["pauses"],
        ["pauses", "--json"],
        ["resume", "--queue", HOSTILE],
        ["pause", "--name", HOSTILE],
    ],
    "dlq": lambda t: [
        ["dlq", "list"],
        ["dlq", "list", "--json"],
        ["dlq", "groups"],
        ["dlq", "groups", "--json"],
        ["dlq", "show", t["dead_letter"]],
    ],
    "cancel": lambda t: [["cancel", t["pending"]], ["audit"], ["audit", "--json"]],
    "submit": lambda t: [["submit", HOSTILE, "a=1"]],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_obeys_or_is_deceived_by_what_a_task_contains(
    run: Run, hostile: dict[str, str], command: str
) -> None:
    for words in COMMANDS[command](hostile):
        result = run(*words)
        assert is_harmless(result.output), (words, result.output)
        if "--json" in words and command in ("show", "explain", "doctor"):
            json.loads(result.stdout)


def test_json_escapes_mean_the_same(run: Run, hostile: dict[str, str]) -> None:
    shown = json.loads(run("show", hostile["pending"], "--json").stdout)
    assert (shown["name"], shown["kwargs"]) == (HOSTILE, {HOSTILE: HOSTILE})
    assert json.loads(run("wait", hostile["completed"]).stdout) == {HOSTILE: HOSTILE}


@pytest.mark.parametrize("character", [*HARMFUL, "\ud800", "\U000e0001"])
def test_every_harmful_character_is_shown_as_an_escape(character: str) -> None:
    assert printable(f"a{character}b").isascii()
    assert printable(f"a{character}b", lines=True).isascii()
    text = json_text({"a": character})
    assert text.isascii()
    assert json.loads(text) == {"a": character}
    assert json.loads(json_text([character], indent=2)) == [character]


# ---- logs ----


def events() -> list[Any]:
    return [
        WorkerStarted(HOSTILE, (HOSTILE,), (HOSTILE,), 1),
        TaskStarted("0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f", HOSTILE, 1),
        TaskEnded("0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f", HOSTILE, 1, "failed", 0.1, error=HOSTILE),
        LeasesRescued((("0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f", HOSTILE, "pending"),)),
    ]


def test_the_worker_in_a_terminal_writes_one_line_for_each_event() -> None:
    stream = io.StringIO()
    view = TerminalView(Console(file=stream, width=10_000), verbose=True)
    for event in events():
        view(event)
    assert is_harmless(stream.getvalue())
    assert len(stream.getvalue().splitlines()) == len(events()) + 1, "and one with the names it serves"


@pytest.mark.parametrize("as_json", [True, False])
def test_log_lines_of_a_worker_stay_lines(as_json: bool) -> None:
    stream = io.StringIO()
    log = LogLines(log_to(stream, as_json=as_json, level=0))
    for event in events():
        log(event)
    assert is_harmless(stream.getvalue())
    assert len(stream.getvalue().splitlines()) == len(events())


@pytest.mark.parametrize("as_json", [True, False, None])
def test_what_a_task_logs_stays_a_line(as_json: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    structlog.reset_defaults()
    configure_task_logging(as_json=as_json)
    try:
        log = structlog.get_logger()
        log.info(HOSTILE, text=HOSTILE, nested={"a": HOSTILE})
        assert len(stream.getvalue().splitlines()) == 1
        try:
            raise ValueError(HOSTILE.replace("\n", ""))
        except ValueError:
            log.exception("failed")
    finally:
        structlog.reset_defaults()
    assert is_harmless(stream.getvalue())


# ---- commands to copy ----

NAMES = [
    "gpu; touch x",
    "a b",
    "it's",
    '"',
    "$(touch x)",
    "`touch x`",
    "a\nb",
    "a\n; touch x",
    "-x",
    "--all",
    "\\",
    "é",
    "\u202e",
    "#",
    "~",
    "*",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_is_one_word_for_a_shell(name: str) -> None:
    assert spoken(shell_word(name)) == [name]
    assert spoken(shell_option("--queue", name)) in (["--queue", name], [f"--queue={name}"])
    assert shell_word(name).isprintable()


@pytest.mark.parametrize("name", NAMES)
def test_suggested_commands_quote_the_names_in_them(url: str, db: psycopg.Connection, name: str) -> None:
    db.execute("INSERT INTO workers (id, names, queues) VALUES ('other', '{x}', '{x}')")
    paused = insert(db, name="x", queue=name)
    unserved = insert(db, name="y", queue=name)
    lacking = insert(db, name="x", queue="x", required_capabilities=[name])
    db.execute("INSERT INTO workers (id, names, queues) VALUES (%s, '{x}', '{x}')", [f"worker {name}"])
    with Client(url) as client:
        hints = [reason.hint for id_ in (unserved, lacking) for reason in client.explain_task(id_).reasons]
        client.pause(queue=name)
        hints += [reason.hint for reason in client.explain_task(paused).reasons]
        hints += [finding.action for finding in examine(client)]
    commands = [hint.partition(": tasklib ")[2] for hint in hints if ": tasklib " in hint]
    ways = {name, f"--queue={name}", f"--capability={name}"}
    assert sum(not ways.isdisjoint(spoken(command)) for command in commands) >= 4, commands


def spoken(command: str) -> list[str]:
    """The words of a command as a shell reads them."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, cwd="/")
    return done.stdout.decode().split("\0")[:-1]


def test_a_value_that_looks_like_an_option_is_joined_to_its_option() -> None:
    assert shell_option("--queue", "mail") == "--queue mail"
    assert shlex.split(shell_option("--queue", "-x y")) == ["--queue=-x y"]
