"""How a child process comes by the task functions: it imports what the worker has imported, its script included."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any, cast

from tasklib.executors.child_protocol import MAIN_ALIAS, MAIN_MARK, Setup, Unloadable, main_import
from tasklib.executors.tracebacks import error_text
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction


def import_for(setup: Setup) -> Unloadable | None:
    """Import all that the first task needs; what can't be imported, as the message that says so."""
    try:
        load(setup.name, setup.module, setup)
    except BaseException as e:
        return unloadable(e, setup)
    return None


def load(name: str, module: str, setup: Setup) -> TaskFunction[Any, Any] | None:
    """Import what the worker has imported, then find the function by its name."""
    for preparing, argument in setup.preparations:
        importlib.import_module(preparing).prepare(argument)
    for imported in setup.modules:
        _import_module(imported, setup)
    if registry.functions.get(name) is None:
        _import_module(module, setup)
    for finishing, argument in setup.finishings:
        importlib.import_module(finishing).finish(argument)
    return registry.functions.get(name)


def _import_module(name: str, setup: Setup) -> None:
    """Import a module; `__main__` means the worker's."""
    if name != "__main__":
        importlib.import_module(name)
    elif main_import() is None:
        _import_main(setup.main_path, setup.main_module)


def _import_main(path: str | None, name: str | None) -> None:
    """Run the worker's script under another name, so that its `if __name__ == "__main__":` part stays out."""
    module = types.ModuleType(MAIN_ALIAS)
    spec = importlib.util.find_spec(name) if name else None
    if spec is not None and spec.loader is not None:  # it was started with -m
        code = cast("Any", spec.loader).get_code(spec.name)
        module.__spec__, module.__package__, module.__file__ = spec, spec.parent, spec.origin
    elif path is not None and os.path.isfile(path):
        code = compile(Path(path).read_bytes(), path, "exec")
        module.__file__ = path
    else:
        raise ImportError(
            "the task function is defined in an interactive session, which a child process can't import. "
            "Put it into a module."
        )
    sys.modules[MAIN_ALIAS] = module
    setattr(module, MAIN_MARK, "under way")
    exec(code, module.__dict__)
    setattr(module, MAIN_MARK, "done")
    sys.modules["__main__"] = module


def unloadable(error: BaseException, setup: Setup) -> Unloadable:
    return Unloadable(_import_failure(error, setup.max_error_bytes))


def _import_failure(error: BaseException, limit: int) -> str:
    """The traceback from the user's first module on, without the machinery that imports it."""
    text = error_text(error, limit, ours=("tasklib", "importlib"))
    return f"{text}\nThe task's modules can't be imported in a child process."
