from __future__ import annotations

from typing import Any

import pytest

from tasklib import TaskFunction, task


@pytest.fixture
def greet() -> TaskFunction[Any, Any]:
    @task
    def greet(name: str, times: int = 1) -> None: ...

    return greet
