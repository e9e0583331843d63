"""TaskLib through PgBouncer in transaction mode: the short version of `make test-pgbouncer`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, TaskCancelled, Worker, current_task, task
from tasklib.embedded import EmbeddedPostgres
from tasklib.errors import DatabaseUnavailable
from tasklib.events import TaskStarted, Woken
from tasklib.testing import databases
from tests.pgbouncer import PROGRAM, Pooler, pgbouncer
from tests.worker.watching import Watched

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed"),
    pytest.mark.direct(reason="it has a pooler of its own"),
]
