from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pydantic import SecretStr

from tasklib import Client, Config, Worker, task
from tasklib.client.calls import Calls
from tests.cli.conftest import Run

MAILING = "from tasklib import task\n@task(max_retries=7)\ndef send_email(to: str, copies: int = 1) -> None: ...\n"


@pytest.fixture
def row(run: Run, url: str, db: psycopg.Connection) -> Any:
    """Submit something and look at the row."""

    def submit(*args: str, **options: Any) -> dict[str, Any]:
        result = run("submit", *args, **options)
        assert result.exit_code == 0, result.output
        with db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            found = cursor.execute("SELECT * FROM tasks WHERE id = %s", [UUID(result.stdout.strip())]).fetchone()
        assert found is not None
        return found

    return submit


def test_submit_prints_the_id_and_nothing_else(run: Run, url: str) -> None:
    result = run("submit", "send_email", "to=a@example.com")
    assert (str(UUID(result.stdout.strip())) + "\n", result.stderr) == (result.stdout, "")


def test_submissions_with_one_merge_key_become_one_task(row: Any, run: Run, url: str) -> None:
    first = row("index", "doc=1", "v=1", "--debounce", "60", "--max-wait", "90", "--merge-key", "doc-1")
    again = row("index", "doc=1", "v=2", "--debounce", "60", "--max-wait", "90", "--merge-key", "doc-1")
    assert (again["id"], again["kwargs"], again["merge_key"]) == (first["id"], {"doc": 1, "v": 2}, "doc-1")
    assert "doc-1, while pending" in run("show", str(first["id"])).stdout
    assert run("submit", "index", "--unique", "sometimes").exit_code == 2


def test_values_are_json_or_else_strings(row: Any) -> None:
    words = ("a=1", "b=1.5", "c=true", "d=null", 'e=[1,"x"]', 'f={"g": 2}', "h=hello", "i=", "j=a=b", 'k="5"', "l=NaN")
    assert row("anything", *words)["kwargs"] == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": None,
        "e": [1, "x"],
        "f": {"g": 2},
        "h": "hello",
        "i": "",
        "j": "a=b",
        "k": "5",
        "l": "NaN",
    }


def test_json_gives_all_arguments_at_once(row: Any) -> None:
    assert row("anything", "--json", '{"queue": "x", "n": [1]}')["kwargs"] == {"queue": "x", "n": [1]}
    assert row("anything", "--json", "-", input='{"from": "stdin"}')["kwargs"] == {"from": "stdin"}


def test_options_reach_the_row(row: Any) -> None:
    found = row(
        *("anything", "--priority", "high", "--queue", "mail", "--max-retries", "9", "--timeout", "30"),
        *("--tag", "batch=7", "--tag", "who=me", "--capability", "gpu", "--idempotency-key", "once"),
    )
    assert (found["priority"], found["queue"], found["max_retries"], found["timeout_seconds"]) == (100, "mail", 9, 30)
    assert (found["tags"], found["required_capabilities"]) == ({"batch": 7, "who": "me"}, ["gpu"])
    assert row("anything", "--idempotency-key", "once")["id"] == found["id"]
    assert row("anything", "--priority", "-5")["priority"] == -5


def test_delay_and_time(row: Any) -> None:
    delayed = row("anything", "--delay", "90")
    assert 89 <= (delayed["scheduled_at"] - delayed["created_at"]).total_seconds() <= 91
    assert row("anything", "--at", "2031-05-01T12:00+02:00")["scheduled_at"].isoformat().startswith("2031-05-01")


def test_module_checks_the_arguments_and_brings_the_tasks_options(run: Run, row: Any, project: Path) -> None:
    (project / "mailing.py").write_text(MAILING)
    assert row("send_email", "to=a", "copies=2", "--module", "mailing")["max_retries"] == 7
    result = run("submit", "send_email", "too=a", "--module", "mailing")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the arguments don't fit send_email: to: is missing")
    result = run("submit", "send_emial", "--module", "mailing")
    assert result.stderr == "error: no task named 'send_emial' in mailing. Did you mean 'send_email'?\n"


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("x", "to"), "'to' is not of the form key=value."),
        (("x", "=5"), "'=5' is not of the form key=value."),
        (("x", "a=1", "a=2"), "'a' is given twice."),
        (("x", "--tag", "batch"), "'batch' is not of the form key=value."),
        (("x", "--json", "{"), "not valid JSON: "),
        (("x", "--json", "[1]"), "must be a JSON object"),
        (("x", "a=1", "--json", "{}"), "give the arguments as key=value or as --json, not both."),
        (("x", "--at", "tomorrow"), "'tomorrow' is not a time; write ISO 8601"),
        (("x", "--at", "2031-01-01T09:00"), "has no time zone. Write 2031-01-01T09:00:00Z for UTC, or "),
    ],
)
def test_words_that_make_no_sense_are_usage_errors(run: Run, args: tuple[str, ...], words: str) -> None:
    result = run("submit", *args)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("x", "--priority", "urgent"),
            "priority must be -10 to 100 or one of high, medium, low, not 'urgent'.",
        ),
        (("x", "--delay", "-1"), "--delay"),
        (("x", "--timeout", "0"), "timeout_seconds must be a whole number"),
    ],
)
def test_options_the_library_refuses_are_usage_errors(run: Run, args: tuple[str, ...], words: str) -> None:
    result = run("submit", *args, env={"COLUMNS": "400"})
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.usefixtures("url")
def test_arguments_that_cannot_be_stored_are_an_error(run: Run) -> None:
    result = run("submit", "x", "a=\x00")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the arguments of x can't be stored: a: contains the character")


def test_a_value_is_text_where_the_function_of_the_module_wants_text(run: Run, row: Any, project: Path) -> None:
    (project / "mailing.py").write_text(MAILING)
    assert row("send_email", "to=1")["kwargs"] == {"to": 1}, "without the module nothing says that it is text"
    found = row("send_email", "to=1", "copies=2", "-m", "mailing")
    assert found["kwargs"] == {"to": "1", "copies": 2}
    assert row("send_email", "to=true", "-m", "mailing")["kwargs"] == {"to": "true"}
    result = run("submit", "send_email", "to=1", "copies=many", "-m", "mailing")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the arguments don't fit send_email: copies: Input should be")
    result = run("submit", "send_email", "--json", '{"to": 1}', "-m", "mailing")
    assert result.stderr.startswith("error: the arguments don't fit send_email: to: Input should be a valid string")


def test_without_the_module_a_known_name_comes_with_a_note_of_what_was_not_applied(
    run: Run, url: str, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO workers (id, names) VALUES ('w', '{send_email}')")
    result = run("submit", "send_email", "to=a")
    assert result.exit_code == 0
    assert result.stderr.startswith("note: the decorator's options of 'send_email' (queue, retries, ")
    said = ("--queue", "q", "--max-retries", "1", "--timeout", "5", "--priority", "low")
    assert run("submit", "send_email", "to=a", *said).stderr == ""


@pytest.mark.usefixtures("url")
def test_ctrl_c_while_waiting_says_the_id_of_what_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []

    def interrupted(_: Calls, task_id: UUID, __: Any) -> None:
        waited.append(task_id)
        raise KeyboardInterrupt

    monkeypatch.setattr(Calls, "wait_for_json", interrupted)
    result = run("submit", "slow", "--wait")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == (
        f"task {waited[0]} is still queued or running. Wait for it: tasklib wait {waited[0]}. "
        f"Stop it: tasklib cancel {waited[0]}\n"
    )


def test_secrets_are_hidden_wherever_the_command_shows_a_task(run: Run, url: str) -> None:
    @task
    def sign_in(password: SecretStr) -> None: ...

    with Client(url) as client:
        task_id = str(client.submit_task(sign_in, password="hunter2"))
    for args in (("show", task_id), ("show", task_id, "--json"), ("list", "--json")):
        result = run(*args)
        assert result.exit_code == 0, result.output
        assert '"password": "**********"' in result.stdout
        assert "hunter2" not in result.output


def test_wait_prints_the_result_as_json(run: Run, url: str) -> None:
    @task
    def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    worker = threading.Thread(target=_work_until_done, args=(url,))
    worker.start()
    result = run("submit", "add", "a=1", "b=2", "--wait", "--timeout-wait", "30")
    worker.join()
    assert (result.exit_code, json.loads(result.stdout), result.stderr) == (0, {"sum": 3}, "")


def test_wait_for_a_failed_task_shows_its_traceback_and_exits_with_1(run: Run, url: str) -> None:
    @task(max_retries=0)
    def fail() -> None:
        raise ValueError("it went wrong")

    with Client(url) as client:
        task_id = client.submit_task(fail)
    Worker(Config(url), burst=True).run_sync()
    result = run("wait", str(task_id))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Traceback (most recent call last):" in result.stderr
    assert "ValueError: it went wrong\n" in result.stderr
    assert result.stderr.endswith(f"\n\nerror: task fail ({task_id}) failed for good.\n")


def test_wait_has_an_end(run: Run, url: str) -> None:
    with Client(url) as client:
        task_id = client.submit_task("far", registered_elsewhere=True, delay_seconds=1000)
    result = run("wait", str(task_id)[-8:], "--timeout", "0")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: task {task_id} is still pending after 0 s. The task is not stopped; only this call has ended.\n"
    )


def test_wait_for_a_task_that_does_not_exist(run: Run, url: str) -> None:
    result = run("wait", "00000000-0000-0000-0000-000000000000")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no task has the id 00000000-")


def _work_until_done(url: str) -> None:
    with Client(url) as client, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN tasklib_public")
        connection.execute(
            "INSERT INTO workers (id, names, asleep, last_heartbeat) VALUES ('s', NULL, true, '2020-01-01')"
        )  # else there is no worker to notify
        if not client.list_tasks():
            next(connection.notifies(timeout=120))
    Worker(Config(url), burst=True).run_sync()
