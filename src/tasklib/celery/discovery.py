"""Imports that an app announces: the modules with tasks of packages, and classes by their path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any


def packages_of(names: Any) -> Iterator[str]:
    """The packages that `autodiscover_tasks` was given: a list, a function that returns one, or Django's apps."""
    if callable(names):
        names = names()
    if names is not None:
        return iter(names)
    django = sys.modules.get("django.apps")
    return iter([config.name for config in django.apps.get_app_configs()] if django is not None else [])


def import_related(package: str, related: str) -> None:
    """Import a package's module of tasks if it has one. The package itself may be named by a class in it."""
    try:
        importlib.import_module(package)
    except ImportError:
        package = package.rpartition(".")[0]
        if not package:
            raise
        importlib.import_module(package)
    name = f"{package}.{related}" if related else package
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name != name:
            raise


def imported(path: str) -> Any:
    """The object of a dotted path."""
    module, _, attribute = path.replace(":", ".").rpartition(".")
    return getattr(importlib.import_module(module), attribute)
