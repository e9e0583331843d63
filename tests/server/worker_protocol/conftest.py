"""A server for the tests of the worker protocol."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tasklib import Config
from tests.server.conftest import Running


@pytest.fixture
def http(server: Callable[..., Running], config: Config) -> httpx.Client:
    return server(config).http
