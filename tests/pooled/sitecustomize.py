"""For a run through PgBouncer: every Config of a test's database leads through the pooler, in every process.

`tests/through_pgbouncer.py` puts this directory into PYTHONPATH. The tests' own connections, and those that create and
drop databases, stay direct; LISTEN does too.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

_DIRECT, _POOLED = os.environ["POOLED_PORTS"].split(":")
# A pooler keeps connections open, and a database that is copied must have no connections.
_DATABASES = ("tasklib_test_", "tasklib_client_")


def pooled(url: str) -> str | None:
    """The way through the pooler; None if this one isn't meant to lead there."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError:
        return None
    if parts.get("port") != _DIRECT or not str(parts.get("dbname", "")).startswith(_DATABASES):
        return None
    if parts.get("options"):  # PgBouncer knows no start-up parameters
        return None
    return url.replace(f":{_DIRECT}", f":{_POOLED}", 1).replace(f"port={_DIRECT}", f"port={_POOLED}", 1)


class _Finder(importlib.abc.MetaPathFinder):
    """Changes tasklib.config when it is imported."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname != "tasklib.config":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            original = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                original(module)
                _lead_through_the_pooler(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _lead_through_the_pooler(module: Any) -> None:
    original = module.Config.__post_init__

    def __post_init__(self: Any) -> None:
        through = pooled(self.database_url) if isinstance(self.database_url, str) else None
        if through is not None:
            if self.listen_database_url is None:
                object.__setattr__(self, "listen_database_url", self.database_url)
            object.__setattr__(self, "database_url", through)
            object.__setattr__(self, "prepared_statements", False)
        original(self)

    module.Config.__post_init__ = __post_init__


sys.meta_path.insert(0, _Finder())
