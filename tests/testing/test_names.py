"""The public names of `tasklib.testing` are few, and don't change by accident."""

from __future__ import annotations

import inspect

from tasklib import testing


def test_these_names_and_no_others_are_public() -> None:
    assert testing.__all__ == [
        "Drained",
        "Inline",
        "InlineTask",
        "assert_not_submitted",
        "assert_submitted",
        "drain",
        "drain_sync",
        "inline",
        "override_dependencies",
        "read_samples",
        "schedules",
        "submitted",
    ]


def test_every_public_name_is_explained() -> None:
    assert [name for name in testing.__all__ if not inspect.getdoc(getattr(testing, name))] == []


def test_drain_and_its_blocking_form_take_the_same_arguments() -> None:
    assert inspect.signature(testing.drain).parameters == inspect.signature(testing.drain_sync).parameters
