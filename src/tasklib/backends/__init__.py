"""Where a worker's tasks come from and where their results go: PostgreSQL itself, or a TaskLib server over HTTP."""

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    if name == "TaskWarrior":  # asked for by the other distribution's `tasklib/__init__.py`, lying in place of ours
        raise ImportError(
            "the distribution `tasklib`, a library for Taskwarrior, is installed over `tasklib-pg`. They can't be in "
            "one environment: pip uninstall tasklib tasklib-pg, then pip install tasklib-pg."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
