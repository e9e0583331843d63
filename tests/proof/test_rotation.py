"""The proof of rotation, with fewer tasks: `python -m proof.rotation`."""

from __future__ import annotations

import pytest

from proof.rotation.__main__ import WRONG, run
from tasklib import Config


@pytest.mark.long
def test_a_rotation_that_is_killed_ten_times_under_load_loses_and_doubles_nothing(config: Config) -> None:
    found = run(config.database_url, tasks=11_000, kills=10)
    assert found["kills"] == 10
    assert {what: found[what] for what in WRONG} == dict.fromkeys(WRONG, 0)
