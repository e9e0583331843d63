"""The event loops a worker may run on: asyncio's own, and uvloop where it is installed."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import pytest


def _uvloop() -> Any:
    import uvloop

    return uvloop.EventLoopPolicy()


LOOPS = [
    pytest.param(asyncio.DefaultEventLoopPolicy, id="asyncio"),
    pytest.param(
        _uvloop,
        id="uvloop",
        marks=pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed"),
    ),
]
