"""`tasklib top`: one look as text, a frame that fits the terminal, and the keys."""

from __future__ import annotations

import psycopg
import pytest
from rich.console import Console

from tasklib import Client, Config
from tasklib.cli.top_figures import COUNT_UP_TO, Rate, look
from tasklib.cli.top_screen import Frame, sparkline
from tasklib.stats import Key, Stat
from tasklib.store import stats
from tests.cli.conftest import Run
from tests.cli.processes import Command


@pytest.fixture
def busy(db: psycopg.Connection, url: str) -> None:
    """A fleet with names that mean no good, a backlog and failures."""
    db.execute(
        "INSERT INTO workers (id, capacity, names) SELECT 'worker-' || i, 10, '{mail}' FROM generate_series(1, 30) AS i"
    )
    db.execute("INSERT INTO leadership (holder, expires_at) VALUES ('worker-1', now() + interval '1 hour')")
    db.execute(
        "INSERT INTO tasks (name, queue, state, worker_id, locked_until, started_at) "
        "SELECT E'evil\\x1b[31m' || repeat('x', 150), repeat('q', 150), 'running', 'worker-2', now() + interval '1 h', "
        "now() - interval '5 h' FROM generate_series(1, 30)"
    )
    db.execute("INSERT INTO tasks (name) SELECT 'mail' FROM generate_series(1, %s)", (COUNT_UP_TO + 10,))
    db.execute("INSERT INTO tasks (name, priority, scheduled_at) VALUES ('mail', -10, now() - interval '2 h')")
    with Client(url) as client:
        counted = [
            Stat(Key("mail", "default", "medium", "completed"), 1200, 60.0, 1.0, [1200] + 15 * [0], [1200] + 15 * [0]),
            Stat(Key("mail", "default", "medium", "dead_letter"), 3, 1.0, 1.0, [3] + 15 * [0], [3] + 15 * [0]),
        ]
        client.database.run(stats.add(counted))


@pytest.mark.usefixtures("busy")
def test_one_look_shows_pace_depth_workers_and_what_runs(run: Run) -> None:
    done = run("top", "--once", env={"COLUMNS": "160", "LINES": "60"})
    assert done.exit_code == 0
    for said in ("leader worker-1", "2,001+ due", "2 h", "30 workers, 30/300", "30 running", "5 h", "mail", "1,203"):
        assert said in done.stdout, said
    assert "\x1b[31m" not in done.stdout


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
def test_a_frame_fits_the_terminal(url: str, width: int, height: int) -> None:
    config = Config(url)
    with Client(config) as client:
        figures = client.perform(look(config))
    console = Console(width=width, height=height, record=True, quiet=True, color_system=None)
    frame = Frame(figures, 12.3, "somebody@a.long.host.name.example:5432/database", False, width, height)
    with console.capture() as captured:
        console.quiet = False
        console.print(frame.render())
    lines = captured.get().rstrip("\n").split("\n")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "12.3/s" in captured.get()


def test_nothing_at_all_is_shown_too(run: Run, url: str) -> None:
    done = run("top", "--once")
    assert done.exit_code == 0
    assert "no leader" in done.stdout
    assert "0 running" in done.stdout


@pytest.mark.usefixtures("project")
def test_keys_pause_and_quit(command: Command, url: str) -> None:
    top = command("top", "--interval", "0.2", terminal=True, TASKLIB_DATABASE_URL=url)
    top.until("q quit, p pause", "no leader")
    top.press("p")
    top.until("PAUSED")
    top.press("q")
    assert top.exit_code() == 0


def test_the_rate_is_that_of_the_last_seconds(url: str) -> None:
    config = Config(url)
    rate = Rate()
    with Client(config) as client:
        assert rate.after(client.perform(look(config))) is None
        client.database.run(stats.add([Stat(Key("mail", "default", "medium", "completed"), 100)]))
        speed = rate.after(client.perform(look(config)))
    assert speed is not None
    assert speed > 0


def test_bars_are_as_high_as_their_values() -> None:
    assert sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert sparkline([]) == ""


def test_queues_errors_pauses_and_warnings_are_shown(run: Run, url: str, db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO tasks (name, queue, scheduled_at) SELECT 'send', 'mail', now() - interval '3 h' "
        "FROM generate_series(1, 7)"
    )
    db.execute(
        "INSERT INTO tasks (name, state, error, completed_at) "
        "VALUES ('charge', 'dead_letter', E'Traceback\\nTimeoutError: gateway', now() - interval '2 min')"
    )
    with Client(url) as client:
        client.pause(queue="mail")
    shown = run("top", "--once", env={"COLUMNS": "100", "LINES": "40"}).stdout
    [queue] = [line for line in shown.splitlines() if line.startswith("mail paused")]
    assert queue.split()[2:6] == ["7", "0", "7", "0"]
    assert "3 h" in queue
    assert "! The queue 'mail' is paused" in shown
    [failure] = [line for line in shown.splitlines() if "charge" in line]
    assert failure.endswith("TimeoutError: gateway")
    assert "! There is no live worker, and tasks wait." in shown
