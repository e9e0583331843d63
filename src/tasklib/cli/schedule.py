"""`tasklib schedule`: tasks that run by themselves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.confirm import DryRun, Yes, confirm
from tasklib.cli.moments import future_moment
from tasklib.cli.options import ChosenDatabase, JsonLines, Modules, with_database
from tasklib.cli.pairs import pairs
from tasklib.cli.schedule_options import (
    NO_FIELDS,
    Arguments,
    AsJson,
    BackfillChoice,
    GivenFields,
    Name,
    Timezone,
    with_schedule_fields,
)
from tasklib.cli.schedule_report import TITLES, as_json, moment_text, print_info, print_slots, row
from tasklib.cli.tables import print_rows
from tasklib.errors import ConfigError
from tasklib.formatting import printable

if TYPE_CHECKING:
    from tasklib.client.clients import Client
    from tasklib.schedules import Schedule
    from tasklib.store.schedules import ScheduleInfo

app = typer.Typer(no_args_is_help=True, help="Make, show, change, pause, run and delete schedules.")


@app.command("list")
@with_database
def list_(
    database: ChosenDatabase,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only schedules of this task function.")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Only paused schedules.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list schedules that are no longer in the code.")
    ] = False,
    json_: JsonLines = False,
) -> None:
    """List the schedules with their next and last runs."""
    found: list[ScheduleInfo] = []
    with database.connected() as client:
        while True:
            after = found[-1].name if found else None
            conditions: dict[str, Any] = {"task": task, "paused": True if paused else None}
            page = client.schedules(after=after, limit=1000, retired=None if everything else False, **conditions)
            found += page
            if len(page) < 1000:
                break
    if json_:
        for info in found:
            typer.echo(json.dumps(as_json(info)))
        return
    print_rows(TITLES, map(row, found), none="no schedules", numbers={"run", "skipped"})


@app.command()
@with_database
def show(database: ChosenDatabase, name: Name, json_: AsJson = False) -> None:
    """Show a schedule: what it means, what it runs, and its next times."""
    from tasklib.schedules import preview as slots_to_come

    with database.connected() as client:
        info = client.get_schedule(name)
    if json_:
        typer.echo(json.dumps(as_json(info)))
        return
    print_info(info)
    if info.unreadable is None:
        print_slots(slots_to_come(info.schedule, info.read_at, 5))


@app.command()
@with_database
def preview(
    database: ChosenDatabase,
    schedule: Annotated[
        str, typer.Argument(metavar="NAME|EXPRESSION", show_default=False, help="A schedule, or a cron expression.")
    ],
    timezone: Timezone = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=1000)] = 20,
    json_: AsJson = False,
) -> None:
    """Say in words what a schedule or a cron expression means, and its next times.

    Example: tasklib schedule preview "0 3 * * MON-FRI" --timezone Europe/Berlin
    """
    from tasklib.client.schedules import is_expression
    from tasklib.schedules import Schedule

    if timezone is not None and not is_expression(schedule):
        raise typer.BadParameter(
            f"goes with a cron expression; {schedule} has a zone of its own.", param_hint="--timezone"
        )
    wanted: Schedule | str = schedule if timezone is None else Schedule(schedule, timezone=timezone)
    with database.connected() as client:
        found = client.preview_schedule(wanted, count=count)
    if json_:
        slots = [{"utc": s.utc.isoformat(), "local": s.local.isoformat(), "note": s.note} for s in found.slots]
        typer.echo(json.dumps({"description": found.description, "slots": slots}))
        return
    typer.echo(found.description)
    print_slots(found.slots)


@app.command()
@with_database
def explain(
    database: ChosenDatabase,
    name: Name,
    at: Annotated[
        str | None, typer.Argument(metavar="TIME", show_default=False, help="A slot: 2026-03-29T03:00+02:00.")
    ] = None,
) -> None:
    """Say why a schedule does not run, and what became of a slot.

    Example: tasklib schedule explain nightly 2026-03-29T03:00+02:00
    """
    with database.connected() as client:
        for sentence in client.explain_schedule(name, future_moment("TIME", at)):
            typer.echo(printable(sentence))


@app.command()
@with_database
@with_schedule_fields
def create(
    database: ChosenDatabase,
    name: Name,
    task: Annotated[str, typer.Argument(metavar="TASK", show_default=False, help="The task function's name.")],
    arguments: Arguments = None,
    given: GivenFields = NO_FIELDS,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE", show_default=False, help="Import this module for the task function and its options."
        ),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Make a schedule.

    Example: tasklib schedule create nightly report --cron "0 3 * * *" --timezone Europe/Berlin full=true
    """
    from tasklib.cli.loading import load
    from tasklib.schedules import Schedule

    if not given.keys() & {"cron", "every"}:
        raise typer.BadParameter('say when it runs: --cron "0 3 * * *" or --every 15m.', param_hint="--cron")
    if module:
        load(module)
    with database.connected() as client:
        wanted = Schedule(**given, args=pairs("KEY=VALUE", arguments))
        made = client.create_schedule(task, wanted, name=name, registered_elsewhere=not module)
    _report(made, json_, "created")


@app.command()
@with_database
@with_schedule_fields
def change(
    database: ChosenDatabase,
    name: Name,
    arguments: Arguments = None,
    given: GivenFields = NO_FIELDS,
    json_: AsJson = False,
) -> None:
    """Change the given fields of a schedule. Its next slot is computed from the current time; nothing runs at once."""
    changes = {**given, "args": pairs("KEY=VALUE", arguments)} if arguments else given
    if not changes:
        raise typer.BadParameter("say what to change: --cron, --timezone, KEY=VALUE, ...", param_hint="NAME")
    with database.connected() as client:
        _report(client.change_schedule(name, **changes), json_, "changed")


@app.command()
@with_database
def pause(
    database: ChosenDatabase,
    name: Name,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, shown to operators.")] = None,
    json_: AsJson = False,
) -> None:
    """Let a schedule run no more until it is resumed. Slots that pass meanwhile are not made up for."""
    with database.connected() as client:
        _report(client.pause_schedule(name, note), json_, "paused")


@app.command()
@with_database
def resume(database: ChosenDatabase, name: Name, json_: AsJson = False) -> None:
    """Let a paused schedule go on, from now."""
    with database.connected() as client:
        _report(client.resume_schedule(name), json_, "resumed")


@app.command()
@with_database
def run(database: ChosenDatabase, name: Name) -> None:
    """Run a schedule's task now and print the task's id. Its slots stay as they are."""
    with database.connected() as client:
        typer.echo(str(client.run_schedule(name)))


@app.command()
@with_database
def delete(database: ChosenDatabase, name: Name, yes: Yes = False) -> None:
    """Delete a schedule. Its tasks stay. One in code comes back at the next deploy."""
    from tasklib.cli.report import note

    with database.connected() as client:
        info = client.get_schedule(name)
        confirm(f"delete the schedule {info.name}", yes=yes, has_dry_run=False)
        client.delete_schedule(name)
    note(f"deleted {name}")


@app.command()
@with_database
def backfill(
    database: ChosenDatabase,
    name: Name,
    start: Annotated[str, typer.Option("--from", metavar="TIME", show_default=False, help="The first slot's time.")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", show_default=False, help="The last slot's time.")],
    overlap: Annotated[
        BackfillChoice | None,
        typer.Option(
            help="All at once, or each after the run before it has ended. Default: as the schedule's overlap says."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Refuse if there are more slots.")] = 1000,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Default: 10 below that of the schedule.")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Run slots that have passed, except those that have been run, and print the ids of the tasks.

    Example: tasklib schedule backfill nightly --from 2026-03-01T00:00Z --to 2026-03-07T00:00Z
    """
    from tasklib.cli.report import note
    from tasklib.observe.formatting import count

    first, last = future_moment("--from", start), future_moment("--to", end)
    assert first is not None
    assert last is not None
    stretch: Any = {"start": first, "end": last, "overlap": overlap and str(overlap), "limit": limit}
    with database.connected() as client:
        look = client.backfill_schedule(name, **stretch, priority=priority, dry_run=True)
        how = "one by one" if look.overlap == "one_by_one" else "all at once"
        before = f", {count(look.has_task, 'slot')} of which had a task before" if look.has_task else ""
        if dry_run:
            for slot in look.slots:
                typer.echo(slot.isoformat())
            note(f"{count(look.count, 'slot')}{before}; to run {how}")
            return
        confirm(f"run {count(look.count, 'slot')} of {name} {how}{before}", yes=yes)
        done = client.backfill_schedule(name, **stretch, priority=priority)
    for task_id in done.task_ids:
        typer.echo(str(task_id))
    note(f"submitted {count(len(done.task_ids), 'task')} for {count(done.count, 'slot')}")
    if done.flow is not None:
        note(f"they run one by one; to stop: tasklib flow cancel {done.flow}")


@app.command()
@with_database
def sync(
    database: ChosenDatabase,
    modules: Modules,
    retire_others: Annotated[
        bool, typer.Option("--retire-others", help="Also retire schedules that are in none of the given modules.")
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The URL of a TaskLib server to use instead of a database. Needs TASKLIB_TOKEN."
        ),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Store the schedules that task functions declare: a step of a deploy. Workers do it when they start.

    Example: tasklib schedule sync app.tasks
    """
    from tasklib.cli.loading import load

    load(modules)
    with _over_http(server) if server else database.connected() as client:
        done = client.sync_schedules(retire_others=retire_others)
    outcomes = {each: getattr(done, each) for each in ("created", "changed", "unchanged", "refused", "retired")}
    if json_:
        typer.echo(json.dumps(outcomes))
        return
    rows = [(outcome, name) for outcome, names in outcomes.items() for name in names]
    print_rows(("outcome", "schedule"), rows, none="no schedules")


def _over_http(url: str) -> Client:
    try:
        from tasklib.http.clients import HttpClient
    except ImportError as e:
        raise ConfigError(f"--server needs httpx ({e}): pip install 'tasklib-pg[http]'") from e
    return HttpClient(url)


def _report(info: ScheduleInfo, as_json_: bool, done: str) -> None:
    from tasklib.cli.report import note

    if as_json_:
        typer.echo(json.dumps(as_json(info)))
        return
    following = f", next {moment_text(info.next_slot, info.read_at)}" if info.is_active else ""
    note(f"{done} {info.name}{following}")
