"""The doctor's findings, by code."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tasklib import Client, Config
from tasklib.doctor.checks import CHECKS
from tasklib.doctor.findings import Finding

Look = Callable[..., dict[str, Finding]]


@pytest.fixture
def look(config: Config) -> Iterator[Look]:
    """One check by its name; its findings by their codes."""
    clients: list[Client] = []

    def examine(name: str, using: Config = config) -> dict[str, Finding]:
        clients.append(Client(using))
        check = next(e for e in CHECKS if e.name == name)
        return {f.code: f for f in clients[-1].perform(check.look(using))}

    yield examine
    for client in clients:
        client.close()
