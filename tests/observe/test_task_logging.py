"""The logs of the program's own code in a worker: each line names its task."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tasklib import Config, task
from tasklib.events import TaskEnded
from tasklib.observe.logs import LogLines, log_to
from tasklib.observe.task_logging import TaskFields, add_task, configure_worker_logging
from tasklib.tasks import surroundings
from tests.worker.watching import burst


@pytest.fixture(autouse=True)
def _logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    monkeypatch.setattr(surroundings, "_finishings", {})
    handlers, level = root.handlers[:], root.level
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def without_handlers() -> logging.Logger:
    """The root logger as a program finds it: pytest has put handlers there."""
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    return root


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_lines_of_logging_and_structlog_name_task_and_attempt(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    without_handlers()
    configure_worker_logging(as_json=True)

    @task
    async def on_the_loop() -> None:
        logging.getLogger("shop").info("loop %d", 1)
        structlog.get_logger().info("structured")

    @task
    def in_a_thread() -> None:
        try:
            raise ValueError("odd")
        except ValueError:
            logging.getLogger("shop").exception("thread")

    logging.getLogger("shop").warning("outside")
    logging.getLogger("shop").debug("too little to tell")
    from tasklib import AsyncClient

    client = AsyncClient(config)
    ids = [str(await client.submit_task(function)) for function in (on_the_loop, in_a_thread)]
    await burst(config)
    said = {line["event"]: line for line in lines(capsys.readouterr().err)}
    assert set(said) >= {"outside", "loop 1", "structured", "thread"}
    assert "task_id" not in said["outside"]
    for event, task_id in (("loop 1", ids[0]), ("structured", ids[0]), ("thread", ids[1])):
        assert (said[event]["task_id"], said[event]["attempt"]) == (task_id, 1)
    assert said["loop 1"]["logger"] == "shop"
    assert "ValueError: odd" in said["thread"]["exception"]


async def test_handlers_of_the_program_stay_and_their_records_name_the_task(config: Config) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("[%(task)s %(attempt)s] %(message)s"))
    without_handlers().addHandler(handler)
    configure_worker_logging(as_json=True)
    configure_worker_logging(as_json=True)
    assert logging.getLogger().handlers == [handler]
    assert [type(each) for each in handler.filters] == [TaskFields]

    @task
    def work() -> None:
        logging.getLogger("shop").warning("hello")

    from tasklib import AsyncClient

    await AsyncClient(config).submit_task(work)
    await burst(config)
    assert "[work 1] hello" in stream.getvalue()


def test_a_program_with_its_own_structlog_adds_one_processor() -> None:
    assert add_task(None, "info", {"event": "x"}) == {"event": "x"}


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_worker_logs_tracebacks_and_the_lines_of_its_tasks(config: Config, tmp_path: Path, executor: str) -> None:
    (tmp_path / "shop.py").write_text(
        "import logging\n"
        "from tasklib import task\n"
        f"@task(max_retries=0, executor='{executor}')\n"
        "def fails() -> None:\n"
        "    logging.getLogger('shop').info('hello from the task')\n"
        "    raise LookupError('nothing here')\n"
    )
    command = [sys.executable, "-m", "tasklib", "worker", "shop", "--burst", "--log-format", "json"]
    environment = {"TASKLIB_DATABASE_URL": config.database_url, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}
    submit = [sys.executable, "-m", "tasklib", "submit", "fails"]
    subprocess.run(submit, check=True, env=environment, capture_output=True)
    done = subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True)
    said = {line["event"]: line for line in lines(done.stderr)}
    assert said["hello from the task"]["attempt"] == 1
    ended = said["task failed"]
    assert ended["error"] == "LookupError: nothing here"
    assert "in fails" in ended["traceback"]
    assert said["hello from the task"]["task_id"] == ended["task_id"]


def test_an_error_of_one_line_has_no_traceback() -> None:
    stream = io.StringIO()
    LogLines(log_to(stream, as_json=True))(TaskEnded("id", "noop", 1, "failed", 0.1, error="TaskTimeout: too long"))
    (line,) = lines(stream.getvalue())
    assert "traceback" not in line
