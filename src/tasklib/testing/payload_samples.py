"""Stored arguments of every version, read as a worker reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tasklib.errors import TaskExecutionError
from tasklib.tasks.function import TaskFunction


def read_samples(
    task: TaskFunction[..., Any, Any, ...], samples: Mapping[int, Iterable[Mapping[str, Any]]]
) -> dict[int, list[dict[str, Any]]]:
    """The typed arguments that the function gets for samples of each version; AssertionError says what can't be read.

    Every version that the function reads needs a sample: its arguments as they were stored.

    read_samples(send, {1: [{"to": "a@example.com"}], 2: [{"recipients": ["a@example.com"]}]})
    """
    versions = task.versions
    assert versions is not None, f"{task.name} has no versions: @task(version=...)."
    missing = [v for v in versions.readable if not list(samples.get(v, ()))]
    assert not missing, f"{task.name} reads version {missing[0]}, of which there is no sample."
    read: dict[int, list[dict[str, Any]]] = {}
    for version, several in sorted(samples.items()):
        for place, sample in enumerate(several):
            try:
                typed = versions.read(task.arguments, json.dumps(dict(sample)), version)
            except TaskExecutionError as e:
                raise AssertionError(f"sample {place} of version {version}: {e}") from e
            read.setdefault(version, []).append(typed)
    return read
