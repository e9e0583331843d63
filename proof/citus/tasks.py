"""What the workers run."""

from __future__ import annotations

from tasklib import task


@task(name="citus.square")
def square(number: int) -> int:
    return number * number
