from __future__ import annotations

import pytest

import tasklib
from tasklib import Config


@pytest.fixture
def app(config: Config) -> Config:
    """The module-level calls on a fresh database."""
    return tasklib.init(config)
