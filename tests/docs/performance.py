"""Performing a page: its files, programs and statements, in the order in which a reader meets them."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.docs.pages import ROOT, Block, Page

# The address that the pages use stands for the database of the test.
ADDRESS = "app@localhost/shop"
PATIENCE = 600.0
STARTED = re.compile("worker started|Serving http")


class Performance:
    """One reading of a page, in a directory and a database of its own."""

    def __init__(self, page: Page, directory: Path, database_url: str, environment: dict[str, str]) -> None:
        self.page = page
        self.directory = directory
        self.database_url = database_url
        self.environment = environment
        self._module = types.ModuleType(f"page_{re.sub(r'[^a-z]', '_', page.name.lower())}")
        self._runner = asyncio.Runner()
        self._programs: list[_Program] = []
        self._files: set[str] = set()

    def perform(self, block: Block) -> None:
        """Do what the block says, unless it says that it can't be done."""
        if block.directive == "not run" or (block.directive == "needs" and not _is_installed(block.detail)):
            if block.language == "python":
                self._compiled(block)
            return
        if block.file is not None:
            self._save(block.file, block.code, add=block.continues)
        elif block.language == "python":
            self._run_python(block)
        elif block.language == "sql":
            self._run_sql(block)
        elif block.directive == "background":
            self._start(block)
        elif block.language == "bash":
            self._run_shell(self._real(block.code))
        elif block.language == "console":
            self._run_session(block)

    def close(self) -> None:
        for program in self._programs:
            program.stop()
        self._runner.close()
        sys.modules.pop(self._module.__name__, None)
        self._forget_files()

    # ---- Python ----

    def _run_python(self, block: Block) -> None:
        sys.modules[self._module.__name__] = self._module
        code = self._compiled(block)
        if block.directive == "raises":
            with pytest.raises(Exception) as raised:
                self._execute(code)
            assert type(raised.value).__name__ == block.detail
        else:
            self._execute(code)

    def _compiled(self, block: Block) -> types.CodeType:
        # Empty lines in front, so that a traceback names the line on the page.
        source = "\n" * (block.line - 1) + self._real(block.code)
        code = compile(source, self.page.path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        assert isinstance(code, types.CodeType)
        return code

    def _execute(self, code: types.CodeType) -> None:
        function = types.FunctionType(code, vars(self._module))
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(function())
        else:
            function()

    def _save(self, name: str, code: str, *, add: bool) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if add else ""
        path.write_text(f"{before}{self._real(code)}\n")
        self._files.add(name)
        self._forget_files()
        for program in self._programs:
            program.await_restart()

    def _forget_files(self) -> None:
        """What is imported next comes from the files as they are now."""
        for name in self._files:
            sys.modules.pop(name.removesuffix(".py").replace("/", "."), None)
        importlib.invalidate_caches()

    # ---- SQL and the shell ----

    def _run_sql(self, block: Block) -> None:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(block.code.encode())

    def _run_session(self, block: Block) -> None:
        for command, expected in _commands(block):
            said = self._run_shell(self._real(command), code=1 if block.directive == "fails" else 0)
            if expected:
                assert _fits(expected, said), f"{command}\nsays:\n{said}\nbut the page shows:\n{expected}"

    def _run_shell(self, script: str, code: int = 0) -> str:
        exported = self.directory / ".environment"
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"{script}\nenv -0 > {shlex.quote(str(exported))}"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == code, f"{script}\nended with {process.returncode}:\n{said}"
        if exported.exists():
            variables = exported.read_text().split("\0")
            self.environment |= dict(variable.split("=", 1) for variable in variables if "=" in variable)
            exported.unlink()
        return said

    def _start(self, block: Block) -> None:
        program = _Program(self._real(block.code), self.directory, self.environment)
        self._programs.append(program)
        program.await_start()
        # A reader copies the lines that the program tells them to copy.
        self.environment |= dict(re.findall(r"^ *export (\w+)=(\S+)$", program.said(), re.MULTILINE))

    def _real(self, text: str) -> str:
        return text.replace(ADDRESS, _address(self.database_url)) if ADDRESS in text else text


class _Program:
    """A program in the background whose worker, or server, starts; and starts again when files change."""

    def __init__(self, command: str, directory: Path, environment: dict[str, str]) -> None:
        self._log = directory / f".{len(list(directory.glob('.*.log')))}.log"
        self._watches = " dev " in f" {command} "
        self._starts = 0
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def said(self) -> str:
        return self._log.read_text()

    def await_start(self) -> None:
        """Wait until it has started once more than before."""
        self._starts += 1
        deadline = time.monotonic() + PATIENCE
        while len(STARTED.findall(self.said())) < self._starts:
            assert self._process.poll() is None, f"it ended:\n{self.said()}"
            assert time.monotonic() < deadline, f"it didn't start:\n{self.said()}"
            time.sleep(0.05)

    def await_restart(self) -> None:
        if self._watches and self._process.poll() is None:
            self.await_start()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)


@contextmanager
def performance(
    page: Page, directory: Path, database_url: str, *, variables: dict[str, str], patch: pytest.MonkeyPatch
) -> Iterator[Performance]:
    """A reader with an empty directory and the commands `python`, `pytest` and `tasklib`."""
    commands, home = directory / "bin", directory / "work"
    for place in (commands, home):
        place.mkdir()
    _make_commands(commands)
    for name in [n for n in os.environ if n.startswith(("TASKLIB_", "PYTHON", "PYTEST_"))]:
        patch.delenv(name)
    patch.chdir(home)
    patch.syspath_prepend(home)
    patch.setattr(sys, "dont_write_bytecode", True)
    for name, value in variables.items():
        patch.setenv(name, value)
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_DATA_HOME": str(directory / "data"),
        "COLUMNS": "120",
    }
    reading = Performance(page, home, database_url, environment)
    try:
        yield reading
    finally:
        reading.close()


def _make_commands(directory: Path) -> None:
    """What an installation puts on the PATH, for this interpreter and this source."""
    plugin = "" if any(e.name == "tasklib" for e in entry_points(group="pytest11")) else " -p _tasklib_pytest"
    for name, arguments in {"python": "", "tasklib": " -m tasklib", "pytest": f" -m pytest{plugin}"}.items():
        script = directory / name
        source = shlex.quote(f"{ROOT / 'src'}")
        script.write_text(f'#!/bin/sh\nPYTHONPATH={source} exec {shlex.quote(sys.executable)}{arguments} "$@"\n')
        script.chmod(0o755)


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _address(url: str) -> str:
    parts: dict[str, Any] = {"host": "127.0.0.1", "port": "5432", "user": "postgres", **conninfo_to_dict(url)}
    password = f":{quote(parts['password'], safe='')}" if parts.get("password") else ""
    return f"{parts['user']}{password}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def _commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a console block with the output shown below it."""
    parts = re.split(r"^\$ ", block.code, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {block.line}: a console block begins with `$ `"
    for part in parts[1:]:
        lines = part.splitlines()
        length = 1
        while lines[length - 1].endswith("\\"):
            length += 1
        yield "\n".join(lines[:length]), "\n".join(lines[length:]).strip()


def _fits(expected: str, said: str) -> bool:
    """True if what was said is what is shown, where `...` stands for anything and spaces for spaces."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
    return re.fullmatch(pattern, " ".join(said.split()), re.DOTALL) is not None
