"""`tasklib check`: can this code run the stored tasks and schedules?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.options import ChosenDatabase, Modules, with_database
from tasklib.formatting import count, printable

if TYPE_CHECKING:
    from tasklib.client.compatibility import Compatibility, Incompatibility


@with_database
def check(
    database: ChosenDatabase,
    modules: Modules,
    json_: Annotated[bool, typer.Option("--json", help="The whole report as one JSON object.")] = False,
) -> None:
    """Compare the signatures in this code with what waits in the table, and say what a deploy would break.

    It reads the arguments of every unfinished task and of every schedule as a worker would: renamed functions, older
    versions, arguments that don't fit. It changes nothing, and calls upcasts but no task. Exit code 0: all can run;
    1: some can't.

    Example: tasklib check app.tasks
    """
    from tasklib.cli.loading import load
    from tasklib.client.compatibility import check as compare
    from tasklib.formatting import json_text

    load(modules)
    with database.connected() as client:
        found = client.perform(compare())
    problems = list(found.problems.values())
    if json_:
        report = {"tasks": found.tasks, "schedules": found.schedules, "unchecked": found.unchecked}
        typer.echo(json_text({**report, "problems": [p.as_dict() for p in problems]}, indent=2))
    else:
        _print(found, problems)
    raise typer.Exit(1 if problems else 0)


def _print(found: Compatibility, problems: list[Incompatibility]) -> None:
    for p in problems:
        of = "" if p.payload_version is None else f", version {p.payload_version}"
        where = f"{count(p.count, p.what)} of {p.name}{of} (such as {p.sample})"
        typer.echo(printable(f"✗ {where}: {p.sentence}"))
    if found.unchecked:
        typer.echo(
            f"- {count(found.unchecked, 'task')} not checked: arguments are sealed, in a payload store, or of an older "
            "version and results of tasks that have not ended"
        )
    read = f"{count(found.tasks, 'unfinished task')} and {count(found.schedules, 'schedule')}"
    typer.echo(f"Read {read}: " + ("this code can run all of them." if not problems else "see above."))
