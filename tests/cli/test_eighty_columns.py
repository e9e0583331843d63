"""`list`, `show`, `explain` and `top` in a terminal of 80 columns: no line is longer, no id and no word is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.cli.processes import Command

NAME = "shop.orders.recalculate_everything_for_customer"
ERROR = (
    "Traceback (most recent call last):\n  File x\nTimeoutError: the payment gateway at gateway.example didn't answer"
)
HISTORY = """[{"attempt": 1, "outcome": "worker_lost", "worker": "web-17.eu-west-1-41077-c0ffee00", "error": "boom",
    "started_at": "2025-01-01T00:00:00+00:00", "ended_at": "2025-01-01T00:00:09+00:00"}]"""


@pytest.fixture
def ids(url: str, db: psycopg.Connection) -> list[str]:
    """Tasks with long names, queues, workers and errors."""
    rows = db.execute(
        """INSERT INTO tasks (name, queue, state, priority, error, retry_count, max_retries, next_retry_at, history)
           SELECT %s, 'recalculations-of-the-night', 'failed', 0, %s, 12, 25, now() + interval '2 hours', %s
           FROM generate_series(1, 3) RETURNING id::text""",
        (NAME, ERROR, HISTORY),
    ).fetchall()
    waiting = db.execute(
        "INSERT INTO tasks (name, queue, required_capabilities) VALUES (%s, %s, '{gpu,eu-west-1}') RETURNING id::text",
        (NAME, "recalculations-of-the-night"),
    ).fetchall()
    return [row[0] for row in [*rows, *waiting]]


def lines(command: Command, url: str, *args: str) -> Iterator[str]:
    """What a command prints in a terminal of 80 columns, without colours."""
    process = command(*args, terminal=True, TASKLIB_DATABASE_URL=url, COLUMNS="80", LINES="24")
    assert process.exit_code() == 0, process.said()
    for line in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", process.said()).splitlines():
        yield line.rstrip()


def test_list_keeps_every_id_so_that_show_takes_it(command: Command, url: str, ids: list[str]) -> None:
    shown = list(lines(command, url, "list"))
    assert max(map(len, shown)) <= 80, shown
    found = [line.split()[0] for line in shown if re.match(r"[0-9a-f]{8} ", line)]
    assert found == [id_[-8:] for id_ in reversed(ids)]
    assert sum("failed" in line and "shop.orders" in line for line in shown) == 3
    assert any(ids[0] in line for line in lines(command, url, "show", found[-1]))


def test_show_fits_and_says_the_whole_id_and_error(command: Command, url: str, ids: list[str]) -> None:
    shown = list(lines(command, url, "show", ids[0]))
    assert max(map(len, shown)) <= 80, shown
    text = " ".join(" ".join(shown).split())
    assert ids[0] in text
    assert NAME in text
    assert "TimeoutError: the payment gateway at gateway.example didn't answer" in text
    assert "worker_lost" in text


def test_explain_breaks_lines_between_words(command: Command, url: str, ids: list[str]) -> None:
    shown = list(lines(command, url, "explain", ids[-1]))
    assert max(map(len, shown)) <= 80, shown
    whole = " ".join(" ".join(lines(command, url, "explain", ids[-1])).split())
    assert ids[-1] in whole
    assert "No live worker" in whole or "no live worker" in whole
    # Every word is one of the unbroken output.
    process = command("explain", ids[-1], TASKLIB_DATABASE_URL=url)
    assert process.exit_code() == 0
    assert set(whole.split()) <= set(process.said().split())


def test_top_fits_and_shows_queues_and_errors(command: Command, url: str, ids: list[str]) -> None:
    shown = list(lines(command, url, "top", "--once"))
    assert max(map(len, shown)) <= 80, shown
    assert len(shown) <= 24
