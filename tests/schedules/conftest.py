"""A client, and a function to make schedules of."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tasklib import (
    Client,
    Config,
    task,
)


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as client:
        yield client


@pytest.fixture
def report() -> Any:
    @task(queue="reports", max_retries=7, tags={"team": "a"})
    def report(day: int = 1, *, since: datetime | None = None) -> None: ...

    return report
