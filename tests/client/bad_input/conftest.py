"""What the tests of bad input share: two task functions, and that what was refused has left no row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import TaskFunction, task


@pytest.fixture
def greet() -> TaskFunction[Any, Any]:
    @task
    def greet(name: str, times: int = 1) -> None: ...

    return greet


@pytest.fixture
def anything() -> TaskFunction[Any, Any]:
    @task
    def anything(x: Any) -> None: ...

    return anything


@pytest.fixture(autouse=True)
def _nothing_is_stored(
    request: pytest.FixtureRequest, database_url: str, janitor: psycopg.Connection
) -> Iterator[None]:
    """What was refused has left no row. (It needs database_url so as to look before that one cleans up.)"""
    yield
    if "stores" not in request.fixturenames:
        assert janitor.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


@pytest.fixture
def stores() -> None:
    """Says that a test does store something."""
