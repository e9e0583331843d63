"""`remove`, `reset` and `sync` of what task functions declare and people change: limits and circuit breakers."""

from __future__ import annotations

from typing import Any

import typer

from tasklib.cli.options import ChosenDatabase, Modules, with_database


def add_commands(app: typer.Typer, kind: str, name_argument: Any, *, title: str) -> None:
    """Add the three commands for a kind, such as "limit". `title` is how its texts call it."""

    def remove(database: ChosenDatabase, name: str) -> None:
        from tasklib.cli.report import note

        with database.connected() as client:
            changed = getattr(client, f"remove_{kind}")(name)
        note(f"{kind} {name} is removed" if changed else f"there is no {kind} {name}")

    def reset(database: ChosenDatabase, name: str) -> None:
        from tasklib.cli.report import note

        with database.connected() as client:
            changed = getattr(client, f"reset_{kind}")(name)
        note(f"{kind} {name} is as the code declares it" if changed else f"{kind} {name} has nothing to reset")

    def sync(database: ChosenDatabase, modules: Modules) -> None:
        from tasklib.cli.loading import load
        from tasklib.cli.report import note
        from tasklib.formatting import count

        load(modules)
        with database.connected() as client:
            note(f"{count(getattr(client, f'sync_{kind}s')(), kind)} stored or changed")

    remove.__annotations__["name"] = reset.__annotations__["name"] = name_argument
    remove.__doc__ = f"Remove a {title}. One that the code declares stays off until `tasklib {kind} reset`."
    reset.__doc__ = f"Restore the {title} that the code declares."
    sync.__doc__ = (
        f"Store the {title}s that task functions declare: a step of a deploy. Workers do it when they start."
        f"\n\nExample: tasklib {kind} sync app.tasks"
    )
    app.command()(with_database(remove))
    app.command()(with_database(reset))
    app.command()(with_database(sync))
