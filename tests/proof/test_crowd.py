"""32 sessions claim, settle, rescue, cancel and delete on one small table, and never lock each other out."""

from __future__ import annotations

import pytest

from proof.chaos.crowd import OPERATIONS, gather
from tasklib import Config

pytestmark = pytest.mark.long


def test_thirty_two_sessions_on_one_table_never_deadlock(config: Config) -> None:
    crowd = gather(config, seconds=6)
    assert crowd.errors == []
    assert crowd.deadlocks == 0
    assert all(crowd.operations[name] for name in OPERATIONS), crowd.operations
