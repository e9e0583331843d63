"""`tasklib demo`: what TaskLib does with the tasks of a small web shop, in half a minute.

It is also a check: what it says on the screen it has looked up in the table, and it ends with 1 if anything is not as
it should be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg
from rich.markup import escape

from tasklib.cli import demo_tasks as shop
from tasklib.cli.demo_screen import PRIORITIES, DemoScreen, Row, last_line
from tasklib.cli.demo_stage import LEASE_SECONDS, DemoFailed, Stage, open_stage
from tasklib.cli.interruption import interruptible
from tasklib.embedded import EmbeddedPostgresError
from tasklib.errors import TaskLibError

BURST = 5000
ORDERS = 8


def run_demo(database_url: str | None) -> int:
    """Play the demo on this database, in a schema of its own, or on a PostgreSQL made for it and removed at the end."""
    screen = DemoScreen()
    try:
        with interruptible():
            introduce(screen, database_url)
            with open_stage(database_url, screen) as stage:
                start_workers(stage)
                order_and_time(stage)
                failures(stage)
                child_processes(stage)
                killed_worker(stage)
                speed = burst(stage)
                summary(stage, speed)
        return 1 if stage.disappointments else 0
    except KeyboardInterrupt:
        screen.say("\nStopped and cleaned up: workers and tables are removed.")
        return 130
    except (TaskLibError, EmbeddedPostgresError, psycopg.Error, DemoFailed) as e:
        screen.say(f"\n[bold red]The demo was aborted:[/] {escape(str(e))}")
        return 1


def introduce(screen: DemoScreen, database_url: str | None) -> None:
    place = f"in the schema {shop.SCHEMA} of your database" if database_url else "in a temporary PostgreSQL"
    screen.act(
        "TaskLib: background work that survives",
        "A web shop must not make its customers wait for e-mails, cards and parcels. It submits tasks: rows in a "
        "PostgreSQL table. Workers, on any machine, take them from there and run them.",
        f"All of this is real: {place}, with worker processes that you will see die.",
    )


def start_workers(stage: Stage) -> None:
    stage.screen.say("The database is ready. Now the first worker:")
    stage.screen.say("[cyan]    tasklib worker tasklib.cli.demo_tasks --queue mail --concurrency 1[/]")
    stage.start_worker("solo", slots=1, queue="mail")
    stage.await_workers("solo")
    # Starting Python takes a second of a slow machine: they come up while the e-mails are sent.
    stage.start_worker("ada", slots=4)
    stage.start_worker("bob", slots=4)
    stage.screen.say(
        "[bold]solo[/] is up and does the e-mails, one by one. [bold]ada[/] and [bold]bob[/], who do four tasks at a "
        "time, are on their way."
    )
    stage.screen.beat(1.0)


def order_and_time(stage: Stage) -> None:
    stage.act(
        "1. Urgent tasks come first, delayed tasks when they are due",
        "Four e-mails are submitted at once, the least urgent first. The reminder must not leave for 3 seconds.",
        code='await send_email.options(priority="high").submit(subject="login code")',
    )
    mail = shop.send_email.options
    stage.submit(
        [
            mail(queue="mail", priority="low").bind(subject="newsletter"),
            mail(queue="mail", priority="medium").bind(subject="receipt"),
            mail(queue="mail", priority="high").bind(subject="login code"),
            mail(queue="mail", delay_seconds=3).bind(subject="reminder"),
        ]
    )
    stage.watch(lambda rows: sum(r.is_over for r in rows) >= 3, "three e-mails are sent")
    insert = f"""INSERT INTO {shop.SCHEMA}.tasks (name, queue, kwargs)
    VALUES ('send_email', 'mail', '{{"subject": "SQL"}}')"""
    stage.db.execute(insert.encode())
    stage.submitted += 1
    stage.screen.say(f"Any program that speaks SQL can submit a task:\n[cyan]    {escape(insert)}[/]")
    rows = {row.kwargs["subject"]: row for row in stage.watch_all()}

    in_order = sorted((rows[subject] for subject in ("newsletter", "receipt", "login code")), key=_started)
    names = [PRIORITIES[row.priority] for row in in_order]
    late, picked_up = rows["reminder"].late or 0.0, rows["SQL"].late or 0.0
    stage.expect(names == ["high", "medium", "low"], f"high starts before medium before low; it was {', '.join(names)}")
    stage.expect(late >= 0, f"a delayed task never starts early; this one did, by {-late:.3f} s")
    stage.conclude(
        f"They were sent in the order [bold]{', '.join(names)}[/]; the reminder {1000 * late:.0f} ms after it was due. "
        f"The INSERT woke a worker in {1000 * picked_up:.0f} ms."
    )


def failures(stage: Stage) -> None:
    stage.act(
        "2. Failed tasks are retried; those that can't succeed become dead letters",
        "The bank is closed at first: the wait doubles with each attempt. An invoice that can't be read ends as a "
        "dead letter, kept with its error. Meanwhile a long export reports its progress.",
        code="@task(max_retries=3)",
    )
    stage.await_workers("ada", "bob")
    stage.submit(
        [
            shop.charge_card.bind(order=7),
            shop.read_invoice.bind(path="scan.pdf"),
            shop.export_customers.bind(count=400),
        ]
    )
    rows = {row.name: row for row in stage.watch_all()}

    card, invoice, export = rows["charge_card"], rows["read_invoice"], rows["export_customers"]
    stage.expect(card.state == "completed" and card.attempt >= 3, "charge_card succeeds after two failures")
    stage.expect(invoice.state == "dead_letter", "read_invoice is a dead letter")
    stage.expect("no total" in (invoice.error or ""), "the dead letter keeps its error")
    stage.expect(export.state == "completed", "export_customers completes")
    stage.conclude(
        f"charge_card got through with attempt {card.attempt}. read_invoice is a dead letter: "
        f"[red]{escape(last_line(invoice.error))}[/]. It stays in the table for inspection."
    )


def child_processes(stage: Stage) -> None:
    stage.act(
        "3. A task that hangs or crashes doesn't affect the others",
        "Two tasks that would ruin a worker run in child processes instead: a regular expression that needs years, "
        "with a timeout of 2 seconds, and an encoder whose process is killed in mid-run.",
        code='@task(executor="process", timeout_seconds=2)',
    )
    stage.submit([shop.match_pattern.bind(text="a" * 40 + "b"), shop.encode_video.bind(title="advert")])
    rows = {row.name: row for row in stage.watch_all()}

    pattern, video = rows["match_pattern"], rows["encode_video"]
    stage.expect(pattern.state == "dead_letter" and pattern.ended_with("timeout"), "match_pattern is stopped in time")
    stage.expect(video.state == "completed" and video.ended_with("crash"), "encode_video survives its crash")
    stage.conclude(
        f"The hanging child was killed: [red]{escape(last_line(pattern.error))}[/]. "
        f"The crashed one was replaced, and attempt {video.attempt} completed."
    )


def killed_worker(stage: Stage) -> None:
    stage.act(
        "4. A worker dies, and no task is lost",
        f"Eight orders, four for each worker. A worker holds a task by a lease of {LEASE_SECONDS} seconds, which it "
        "keeps renewing. When it dies, the lease runs out and the task goes to another worker.",
        code="@task(transactional=True)   # its writes commit with its completion",
    )
    stage.start_worker("zoe", slots=500, queue="ticks")  # for the next act
    stage.submit(shop.ship_order, [{"order": number} for number in range(1, ORDERS + 1)])
    stage.watch(_all_run, "all orders are being worked on")
    rows = stage.watch_for(0.8)
    orphans = {row.id for row in rows if row.worker == "ada"}
    stage.screen.say(f"[bold red]kill -9 {stage.workers['ada'].pid}[/]   (ada, with {len(orphans)} orders half done)")
    stage.kill_worker("ada")
    stage.watch(lambda rows: any(r.ended_with("lost") for r in rows), "ada's leases run out")
    stage.screen.say("ada's leases have run out: [bold]bob[/] takes over her orders.")
    rows = stage.watch_all()

    recovered = [row for row in rows if row.ended_with("lost")]
    parcels = stage.value(f"SELECT count(*) FROM {shop.SCHEMA}.parcels")
    orders = stage.value(f"SELECT count(DISTINCT order_number) FROM {shop.SCHEMA}.parcels")
    stage.expect(all(row.state == "completed" for row in rows), "all orders are completed")
    stage.expect({row.id for row in recovered} >= orphans, "all of ada's orders were recovered")
    stage.expect(parcels == orders == ORDERS, f"{ORDERS} orders make {ORDERS} parcels, not {parcels} for {orders}")
    stage.conclude(
        f"{ORDERS} orders, {parcels} parcels, none twice: what ada had written for her {len(recovered)} orders was "
        "rolled back when she died, and bob shipped them."
    )


def burst(stage: Stage) -> str:
    stage.act(
        "5. Throughput",
        f"[bold]zoe[/], a worker with 500 slots, is given {BURST:,} tasks that do nothing.",
        code=f"await submit_many(tick, [{{}}] * {BURST})",
    )
    stage.await_workers("zoe")
    began = time.monotonic()
    stage.submit(shop.tick, [{}] * BURST)
    submitted = time.monotonic() - began
    stage.watch_count("tick", BURST)
    done: float = stage.value(
        "SELECT coalesce(extract(epoch FROM max(completed_at) - min(started_at)), 'NaN')::float8 "
        f"FROM {shop.SCHEMA}.tasks WHERE name = 'tick'"
    )
    speed = f"{BURST:,} tasks submitted in {submitted:.2f} s, done in {done:.2f} s: {BURST / done:,.0f} per second"
    stage.conclude(f"{speed}.")
    return speed


def summary(stage: Stage, speed: str) -> None:
    completed, dead = stage.count("state = 'completed'"), stage.count("state = 'dead_letter'")
    lost = stage.submitted - completed - dead
    stage.expect(lost == 0, f"no task is lost, not {lost}")
    stage.screen.act("What happened")
    for number, what, meaning in (
        (stage.submitted, "submitted", ""),
        (completed, "completed", ""),
        (stage.count("retry_count > 0"), "retried", "needed more than one attempt"),
        (dead, "dead-lettered", "kept with their errors, for a person to look at"),
        (stage.count("""history @> '[{"outcome": "lost"}]'"""), "recovered", "taken over from the killed worker"),
        (lost, "lost", ""),
    ):
        stage.screen.say(f"[bold]{number:>7,}  {what}[/]{'' if not meaning else f'[dim]: {meaning}[/]'}")
    stage.screen.say(f"         {speed}")
    stage.screen.say(f"         the demo took {stage.screen.seconds:.0f} seconds")
    verdict(stage)


def verdict(stage: Stage) -> None:
    if stage.disappointments:
        stage.screen.say("\n[bold red]Not everything was as it should be:[/]")
        for what in stage.disappointments:
            stage.screen.say(f"  expected that {escape(what)}")
        return
    stage.screen.say("\n[bold green]Every task was done or kept with its error; none was lost, none done twice.[/]")
    stage.screen.say("Your turn:")
    stage.screen.say("  [bold]docs/tutorial.md[/]   your first task in ten minutes")
    stage.screen.say("  [bold]tasklib dev[/]        a database and a worker for your own tasks")


def _started(row: Row) -> float:
    return row.started_at.timestamp() if row.started_at else 0.0


def _all_run(rows: Sequence[Row]) -> bool:
    return all(row.state == "running" for row in rows)
