"""`tasklib erase`: erase what finished tasks hold, such as all that is stored about one person."""

from __future__ import annotations

import typer

from tasklib.cli.confirm import DryRun, Yes, confirm
from tasklib.cli.filters import with_task_filter
from tasklib.cli.options import ChosenDatabase, with_database
from tasklib.formatting import count
from tasklib.store.filters import EVERY_TASK, TaskFilter


@with_task_filter
@with_database
def erase(database: ChosenDatabase, chosen: TaskFilter = EVERY_TASK, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Erase arguments, results, errors, progress, steps and signals of finished tasks that match. The rows stay.

    Exit code 1: tasks that match are not finished, and were left as they are.

    Example: tasklib erase --tag customer=42
    """
    if chosen.is_everything:
        raise typer.BadParameter("give filter options, such as --tag customer=42.")
    with database.connected() as client:
        found = client.erase_tasks(chosen, dry_run=True)
        if not dry_run and found.erased:
            confirm(f"erase what {count(found.erased, 'finished task')} hold for good", yes=yes)
            found = client.erase_tasks(chosen)
    typer.echo(f"{'would erase' if dry_run else 'erased'} {count(found.erased, 'finished task')}")
    if found.left:
        typer.echo(
            f"{count(found.left, 'task matches and is', 'tasks match and are')} not finished, and stay as they are: "
            "wait for them, or use tasklib cancel, and erase again."
        )
        raise typer.Exit(1)
