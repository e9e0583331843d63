from __future__ import annotations

from typing import Any

import pytest

from tasklib import task


@pytest.fixture
def greet() -> Any:
    @task
    def greet(name: str) -> Any: ...

    return greet
