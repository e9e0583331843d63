"""The examples run, and print what they say they print."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
IN_A_PROCESS_OF_ITS_OWN = {"fastapi_app.py", "processes.py"}


@pytest.mark.parametrize("path", EXAMPLES, ids=[p.name for p in EXAMPLES])
def test_example_prints_what_it_says(
    path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TASKLIB_DATABASE_URL", database_url)
    if path.name in IN_A_PROCESS_OF_ITS_OWN:
        printed = _output_of(path)
    else:
        runpy.run_path(str(path), run_name="__main__")
        printed = capsys.readouterr().out
    promised = path.read_text().split('"""')[1].partition("It prints:\n\n")[2]
    assert printed == textwrap.dedent(promised)


@pytest.mark.parametrize("name", ["tasks.py", "submit.py"])
def test_the_quick_start_is_that_of_the_readme(name: str) -> None:
    (shown,) = [block.code for block in Page(ROOT / "README.md").blocks if block.file == name]
    assert (ROOT / "examples/quickstart" / name).read_text() == shown.partition("\n")[2] + "\n"


def test_every_example_is_listed() -> None:
    index = (ROOT / "examples/README.md").read_text()
    assert [p.name for p in EXAMPLES if f"]({p.name})" not in index] == []


def _output_of(path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout
