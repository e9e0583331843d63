"""Awaiting something in synchronous code, whether or not a loop is running there."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end: by `asyncio.run`, in a helper thread if a loop is already running in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="tasklib-testing") as helper:
        return helper.submit(context.run, lambda: asyncio.run(start())).result()
