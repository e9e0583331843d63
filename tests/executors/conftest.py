"""Executors with real children."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from process_children import CONFIG

from tasklib.executors.processes import ProcessExecutor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[ProcessExecutor]:
    """Shared: starting an interpreter takes longer than most tests."""
    made = ProcessExecutor(CONFIG)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def fresh() -> AsyncIterator[ProcessExecutor]:
    """For tests that look at the children themselves."""
    made = ProcessExecutor(CONFIG)
    yield made
    await made.close()
