"""A module with hooks, as child processes import it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from types import SimpleNamespace

from tasklib import Depends, TaskContext, current_task, on_startup, task


@on_startup(where="child")
async def open_in_child(state: SimpleNamespace) -> AsyncIterator[None]:
    state.opened_by = os.getpid()
    yield
    with open(os.environ["TASKLIB_TEST_HOOKS"], "w") as said:  # noqa: ASYNC230  # the process ends anyway
        said.write(f"closed by {os.getpid()}")


def whose(context: TaskContext) -> str:
    return f"{context.name} {context.attempt}"


@task(executor="process")
async def in_child(who: str = Depends(whose)) -> list[object]:
    return [current_task().state.opened_by == os.getpid(), os.getpid(), who]


@task(executor="process")
def logs_in_child() -> None:
    logging.getLogger("shop").info("hello from a child")
