"""Noticing that Python files have changed, by looking at them now and then."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tasklib.cli.loading import module_of

_SHORTEST_PAUSE = 0.3
# Looking takes at most a tenth of the time, however large the tree is.
_PAUSE_PER_LOOK = 10
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


class FileWatch:
    """The Python files below some directories."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = _without_nested(roots)
        self.pause = _SHORTEST_PAUSE
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """The files that were changed, added or removed since the last call."""
        before, self._seen = self._seen, self._look()
        return [Path(p) for p in sorted(before.keys() | self._seen.keys()) if before.get(p) != self._seen.get(p)]

    def _look(self) -> dict[str, tuple[int, int, int]]:
        began = time.monotonic()
        found = {}
        for root in self.roots:
            for path in _python_files(str(root)):
                try:
                    status = os.stat(path)
                except OSError:
                    continue
                # Editors replace files: the inode tells where time and size don't.
                found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        self.pause = max(_SHORTEST_PAUSE, (time.monotonic() - began) * _PAUSE_PER_LOOK)
        return found


def directories_of(targets: Iterable[str]) -> list[Path]:
    """What to watch: the current directory, and where modules outside of it are. Installed ones don't change."""
    here = Path.cwd()
    # Home and the root hold far more than a project.
    roots = [] if here in (Path.home(), Path(here.anchor)) else [here]
    for target in targets:
        root, name = module_of(target.partition(":")[0])
        if root is not None:
            roots.append(root)
        elif (place := _place(name.partition(".")[0])) is not None:
            roots.append(place)
    return roots or [here]


def _place(top_level: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(top_level)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    where = next(iter(spec.submodule_search_locations or ()), None) or (spec.origin and os.path.dirname(spec.origin))
    installed = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), sysconfig.get_path("platlib"))
    return Path(where) if where and not where.startswith(installed) and os.path.isdir(where) else None


def _without_nested(roots: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for root in sorted({r.resolve() for r in roots}):
        if not any(root.is_relative_to(k) for k in kept):
            kept.append(root)
    return kept


def _python_files(directory: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    if any(e.name == "pyvenv.cfg" for e in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _python_files(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path
