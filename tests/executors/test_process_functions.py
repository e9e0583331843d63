"""How a child finds the function: modules, main scripts, interactive sessions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import process_tasks as tasks
import pytest
from process_children import CONFIG, SOURCE, failure, value

import tasklib
from tasklib.executors.outcomes import FailureKind
from tasklib.executors.processes import ProcessExecutor

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_module_that_cant_be_imported_fails_the_attempt_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    broken = tmp_path / "broken_module.py"
    broken.write_text("import os\nraise OSError('no disk')\n")
    executor = ProcessExecutor(CONFIG, ["broken_module"])
    failed = await failure(executor, tasks.pid)
    assert 'broken_module.py", line 2' in failed.error
    assert "OSError: no disk" in failed.error
    assert "importlib" not in failed.error
    assert (failed.kind, failed.retriable) == (FailureKind.ERROR, True)
    # The child is gone; the next one imports the repaired module.
    broken.write_text("repaired = True\n")
    assert await value(executor, tasks.pid)
    await executor.close()


async def test_modules_register_functions_whose_own_module_cant_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugin_loader.py").write_text(
        "from tasklib import task\ndef hidden() -> int:\n    return 5\n"
        "hidden.__module__ = 'nowhere'\ntask(executor='process')(hidden)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import plugin_loader  # noqa: F401 - found through sys.path, as in the worker

    hidden = tasklib.tasks.registry.functions.get("hidden")
    executor = ProcessExecutor(CONFIG, ["plugin_loader"])
    assert await value(executor, hidden) == 5
    await executor.close()


async def test_function_that_importing_doesnt_register_is_named(executor: ProcessExecutor) -> None:
    failed = await failure(executor, tasks.make_local())
    assert failed.error.startswith("TaskNotFound: importing process_tasks in a child process didn't register")
    assert "top level" in failed.error


SCRIPT = """
import asyncio, json, sys, uuid
from pydantic import BaseModel
from tasklib import Config, TaskContext, task
from tasklib.executors.processes import ProcessExecutor

class Point(BaseModel):
    x: int

@task(executor="process")
def double(point: Point) -> dict[str, object]:
    return {"x": point.x * 2, "name": __name__, "is_main": sys.modules["__main__"].double is double}

async def main() -> None:
    executor = ProcessExecutor(Config("postgresql://"))
    context = TaskContext(uuid.uuid4(), "double", 1, 1, 1, "default", "w")
    outcome = await executor.run(double, '{"point": {"x": 21}}', context)
    print(getattr(outcome, "result", None) or outcome.error)
    await executor.close()

GUARDasyncio.run(main())
"""


@pytest.mark.parametrize("arguments", [["app.py"], ["-m", "app"], ["-m", "package"]], ids=" ".join)
async def test_function_of_a_main_script_is_found(arguments: list[str], tmp_path: Path) -> None:
    guarded = SCRIPT.replace("GUARD", 'if __name__ == "__main__":\n    ')
    (tmp_path / "app.py").write_text(guarded)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "__main__.py").write_text(guarded)
    out, err = await script(arguments, tmp_path)
    assert json.loads(out)["value"] == {"x": 42, "name": "__mp_main__", "is_main": True}
    assert err == ""


async def test_script_without_a_guard_is_told_to_have_one(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SCRIPT.replace("GUARD", ""))
    assert 'Start it under `if __name__ == "__main__":`' in (await script(["app.py"], tmp_path))[0]


async def test_function_of_an_interactive_session_is_told_to_move(tmp_path: Path) -> None:
    out, _ = await script(["-c", SCRIPT.replace("GUARD", "")], tmp_path)
    assert "Put it into a module." in out


async def test_modules_of_the_current_directory_dont_shadow_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "app.py").write_text(SCRIPT.replace("GUARD", 'if __name__ == "__main__":\n    '))
    (tmp_path / "struct.py").write_text("raise RuntimeError('the wrong struct')\n")
    assert '"x":42' in (await script([str(tmp_path / "app" / "app.py")], tmp_path))[0]


async def script(arguments: list[str], directory: Path) -> tuple[str, str]:
    """What a program prints to stdout and stderr."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        cwd=directory,
        env=os.environ | {"PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await program.communicate()
    return out.decode(), err.decode()
