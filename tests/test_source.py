"""The source as a reader meets it: a class is found by its name, a module holds what it is named for."""

from __future__ import annotations

from pathlib import Path

import tasklib
from tools.walk.source import survey

PACKAGE = Path(tasklib.__file__).parent

EXCEPTIONS = "exceptions.py"
"""The name under which many programs look for a library's errors; TaskLib itself imports `tasklib.errors`."""


def test_no_two_classes_have_one_name() -> None:
    assert survey(PACKAGE)["classes_defined_twice"] == {}


def test_only_a_package_of_public_names_re_exports_them() -> None:
    modules = [name for name in survey(PACKAGE)["modules_that_only_re_export"] if not name.endswith("__init__.py")]
    assert modules == [EXCEPTIONS]
