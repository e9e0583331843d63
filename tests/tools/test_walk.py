"""`python -m tools.walk`: what a reader has to walk through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tools.walk.duplicates import duplicates
from tools.walk.log import Log, Window
from tools.walk.source import survey

ROOT = Path(__file__).resolve().parents[2]


def test_the_submit_path_of_this_tree_is_counted_by_running_it(empty_database_url: str) -> None:
    options = ["--paths", "submit", "--rounds", "2", "--database-url", empty_database_url, "--json"]
    ran = subprocess.run([sys.executable, "-m", "tools.walk", *options], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    submit = json.loads(ran.stdout)["paths"]["submit"]
    assert any(name.endswith(":Submitter.submit") for name in submit["functions"])
    assert {"client/submissions.py", "store/submit.py"} <= set(submit["files"])
    assert not any(name.startswith(("worker/", "migrations/", "cli/")) for name in submit["files"])


def test_only_what_every_run_enters_counts(tmp_path: Path) -> None:
    log = logged(tmp_path, (1, "a.py:f"), (2, "b.py:by_chance"), (11, "a.py:f"))
    assert log.entered([Window(0, 9), Window(10, 19)], ["worker"]).functions == ["a.py:f"]


def test_what_an_idle_process_enters_counts_only_on_the_way_to_something_else(tmp_path: Path) -> None:
    log = logged(
        tmp_path,
        (1, "a.py:listen"),
        (2, "b.py:timer"),
        (11, "a.py:listen"),
        (12, "a.py:ring;a.py:listen;main.py:main"),
        (13, "b.py:timer"),
    )
    assert log.entered([Window(10, 19)], ["worker"], Window(0, 9)).functions == ["a.py:listen", "a.py:ring"]


def test_a_duty_that_an_idle_leader_repeats_counts_only_where_duties_are_measured(tmp_path: Path) -> None:
    log = logged(tmp_path, (1, "maintenance/schedules.py:fire"), (11, "maintenance/schedules.py:fire"))
    assert log.entered([Window(10, 19)], ["worker"], Window(0, 9)).functions == []
    measured = log.entered([Window(10, 19)], ["worker"], Window(0, 9), duties=True)
    assert measured.functions == ["maintenance/schedules.py:fire"]


def test_a_lambda_belongs_to_the_function_it_is_written_in_and_an_import_counts_for_nothing(tmp_path: Path) -> None:
    log = logged(tmp_path, (1, "a.py:f.<locals>.<lambda>"), (2, "b.py:Class;b.py:<module>;a.py:f"))
    assert log.entered([Window(0, 9)], ["worker"]).functions == ["a.py:f"]


def test_a_block_of_eight_lines_that_occurs_twice_is_found_once(tmp_path: Path) -> None:
    block = "".join(f"    {name} = {name}_of(given)  # {name}\n" for name in "abcdefghi")
    (tmp_path / "one.py").write_text(f"def one(given):\n{block}    return a\n")
    (tmp_path / "two.py").write_text(f"import os\n\n\ndef two(given, more):\n{block}    return b\n")
    assert duplicates(tmp_path, names_differ=False) == [(9, "one.py:2-10", "two.py:5-13")]


def test_long_functions_names_defined_twice_and_modules_that_only_re_export_are_listed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Same: ...\ndef long():\n" + "    pass\n" * 30)
    (tmp_path / "two.py").write_text("class Same: ...\n")
    (tmp_path / "only.py").write_text('"""Names."""\nfrom one import Same\n__all__ = ["Same"]\n')
    found = survey(tmp_path)
    assert found["python"] == {"files": 3, "lines": 36}
    assert found["long_functions"] == {"one.py:2 long": 31}
    assert found["classes_defined_twice"] == {"Same": ["one.py:1", "two.py:1"]}
    assert found["modules_that_only_re_export"] == ["only.py"]


def logged(directory: Path, *entries: tuple[int, str]) -> Log:
    log = Log(directory / "log")
    log.path.write_text("".join(f"{at}\tworker\t{stack}\n" for at, stack in entries))
    return log
