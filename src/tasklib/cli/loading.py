"""Finding task functions: `module`, `module:object` and `path/to/file.py`, with errors that say what to change."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from typer import BadParameter

from tasklib.cli.host import host
from tasklib.cli.report import CommandError
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction


@dataclass(frozen=True, slots=True)
class Loaded:
    """The requested modules, and the names to serve (None: all that are registered)."""

    modules: tuple[str, ...]
    names: tuple[str, ...] | None


def load_or_discover(targets: Sequence[str]) -> Loaded:
    """Import all targets; without any, what the program around the command has."""
    if targets:
        return load(targets)
    around = host()
    if around is None:
        raise BadParameter("Missing argument 'MODULE[:OBJECT]...': where the tasks are, such as app.tasks or tasks.py.")
    around.load()
    return Loaded(tuple(around.modules), None)


def load(targets: Sequence[str]) -> Loaded:
    """Import all targets. The current directory comes first on the path, as with `python -m`."""
    put_on_path(Path.cwd())
    modules: list[str] = []
    names: list[str] = []
    chosen = False
    for target in targets:
        place, _, attribute = target.partition(":")
        module, registered = _import(place)
        modules.append(module.__name__)
        if attribute:
            chosen = True
            names += _names_in(module, attribute, target)
        else:
            names += _registered_by(module, registered)
    return Loaded(tuple(dict.fromkeys(modules)), tuple(dict.fromkeys(names)) if chosen else None)


def put_on_path(directory: Path) -> None:
    """Search for modules in this directory first."""
    text = str(directory)
    if sys.path[:1] != [text]:
        sys.path.insert(0, text)


def module_of(place: str) -> tuple[Path | None, str]:
    """The directory to put on the path (None: leave it) and the module's name, for a module or a file."""
    if not place.endswith(".py") and os.sep not in place:
        return None, place
    path = Path(place).expanduser().absolute()
    if not path.exists() or (path.is_dir() and not (path / "__init__.py").exists()):
        kind = "a directory without __init__.py" if path.is_dir() else "no file"
        raise CommandError(f"{place}: there is {kind} of this name in {Path.cwd()}.")
    # A file in a package is that package's module; any other is found next to itself, as `python file.py` would.
    root, parts = path.parent, [path.stem if path.is_file() else path.name]
    while (root / "__init__.py").exists():
        root, parts = root.parent, [root.name, *parts]
    if parts[-1] == "__init__":
        parts.pop()
    return root, ".".join(parts)


def _import(place: str) -> tuple[ModuleType, list[str]]:
    """The module, and the task names that came with it."""
    root, name = module_of(place)
    if root is not None:
        put_on_path(root)
    if not name or name.startswith("."):
        raise CommandError(f"{place!r} is not a module. Give its full name (app.tasks) or its file (tasks.py).")
    before = set(registry.names())
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
        registry.discover()
    except ModuleNotFoundError as e:
        if e.name is None or not (name == e.name or name.startswith(f"{e.name}.")):
            raise _import_failed(name, e) from e
        raise CommandError(_not_found(name)) from e
    except (Exception, SystemExit) as e:
        raise _import_failed(name, e) from e
    return module, [n for n in registry.names() if n not in before]


def _registered_by(module: ModuleType, registered: list[str]) -> list[str]:
    """All tasks of a module: those that importing it registered, and those it contains."""
    here = module.__name__
    defined = [f.name for f in registry.distinct() if f"{f.function.__module__}.".startswith(f"{here}.")]
    names = [*registered, *defined, *(f.name for f in _task_functions(module))]
    if not names:
        raise CommandError(
            f"{here} has no tasks ({getattr(module, '__file__', None) or 'a namespace package'}). "
            "Put @task (from tasklib import task) above the functions that a worker should run, "
            "or name the module that has them."
        )
    return names


def _names_in(module: ModuleType, attribute: str, target: str) -> list[str]:
    """The tasks behind module:object."""
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = [n for n in vars(value) if not n.startswith("_")] if hasattr(value, "__dict__") else []
            raise CommandError(f"{target}: {_named(value)} has no {part!r}.{_did_you_mean(part, known)}")
        value = getattr(value, part)
    found = list(_task_functions(value))
    if not found:
        without = isinstance(value, FunctionType)
        what = "a function without @task" if without else f"{_named(value)} that holds no tasks"
        raise CommandError(f"{target} is {what}. Name a task function, or a list of them.")
    for function in found:
        if registry.functions.get(function.name) is None:
            registry.register(function)
    return [f.name for f in found]


def _task_functions(value: object) -> Iterator[TaskFunction[Any, Any]]:
    values: Iterable[object]
    match value:
        case TaskFunction():
            values = (value,)
        case ModuleType():
            values = vars(value).values()
        case Mapping():
            values = value.values()
        case list() | tuple() | set() | frozenset():
            values = value
        case _:
            values = ()
    return (v for v in values if isinstance(v, TaskFunction))


def _named(value: object) -> str:
    return value.__name__ if isinstance(value, ModuleType) else f"a {type(value).__name__}"


def _not_found(name: str) -> str:
    parent, _, last = name.rpartition(".")
    if parent in sys.modules and hasattr(sys.modules[parent], last):
        return f"no module named {name!r}: {last} is in the module {parent}. Did you mean {parent}:{last}?"
    here = Path.cwd()
    root = name.partition(".")[0]
    modules = [p.stem if p.is_file() else p.name for p in here.iterdir() if p.suffix == ".py" or _is_package(p)]
    missing = name if root not in modules else f"{name} (there is a {root}, but not the rest of it)"
    return (
        f"no module named {missing} in {here} or on the Python path.{_did_you_mean(root, modules)} "
        "Check the spelling, and run the command in the directory that holds it."
    )


def _is_package(path: Path) -> bool:
    return path.is_dir() and (path / "__init__.py").exists()


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = [n for n in difflib.get_close_matches(word, list(known), n=1, cutoff=0.6) if n != word]
    return f" Did you mean {near[0]!r}?" if near else ""


def _import_failed(name: str, error: BaseException) -> CommandError:
    what = f"it called sys.exit({error.code!r})" if isinstance(error, SystemExit) else _last_words(error)
    return CommandError(f"importing {name} failed: {what}", detail=_users_traceback(error))


def _last_words(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _users_traceback(error: BaseException) -> str:
    """The traceback with the user's own frames; those of Python, libraries and TaskLib say little to them."""
    shown = traceback.TracebackException.from_exception(error)
    pending = [shown]
    while pending:
        part = pending.pop()
        ours = [f for f in part.stack if not _is_machinery(f.filename)]
        part.stack = traceback.StackSummary.from_list([f for f in ours if not _is_library(f.filename)] or ours)
        pending += [p for p in (part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())) if p]
    return "".join(shown.format())


_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_LIBRARIES = tuple({sysconfig.get_path(p) + os.sep for p in ("stdlib", "platstdlib", "purelib", "platlib")})


def _is_machinery(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen importlib")) or f"{os.sep}importlib{os.sep}" in filename


def _is_library(filename: str) -> bool:
    return filename.startswith((*_LIBRARIES, "<frozen"))
