from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasklib.cli.watch import FileWatch, directories_of


@pytest.fixture
def watch(project: Path) -> FileWatch:
    (project / "tasks.py").write_text("1")
    (project / "notes.txt").write_text("1")
    return FileWatch([project])


def test_nothing_changed(watch: FileWatch) -> None:
    assert watch.changed() == []


def test_edits_additions_and_removals_are_seen_once(watch: FileWatch, project: Path) -> None:
    (project / "tasks.py").write_text("22")
    assert watch.changed() == [project / "tasks.py"]
    assert watch.changed() == []
    (project / "package").mkdir()
    (project / "package/new.py").touch()
    assert watch.changed() == [project / "package/new.py"]
    (project / "tasks.py").unlink()
    assert watch.changed() == [project / "tasks.py"]


def test_file_replaced_by_one_of_the_same_time_and_size_is_seen(watch: FileWatch, project: Path) -> None:
    before = os.stat(project / "tasks.py")
    (project / "tasks.tmp").write_text("2")
    os.utime(project / "tasks.tmp", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(project / "tasks.tmp", project / "tasks.py")
    assert watch.changed() == [project / "tasks.py"]


def test_what_is_not_the_users_code_is_not_watched(watch: FileWatch, project: Path) -> None:
    for name in (".git", "__pycache__", "node_modules", "env"):
        (project / name).mkdir()
        (project / name / "x.py").touch()
    (project / "env/pyvenv.cfg").touch()
    (project / "notes.txt").write_text("2")
    assert watch.changed() == []


def test_current_directory_and_files_elsewhere_are_watched(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/work.py").touch()
    (project / "inner").mkdir()
    (project / "inner/tasks.py").touch()
    roots = directories_of(["inner/tasks.py", "../elsewhere/work.py:GROUP", "json", "no_such_module"])
    assert FileWatch(roots).roots == sorted([project, tmp_path / "elsewhere"])


def test_home_is_too_large_to_watch(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/work.py").touch()
    assert directories_of(["../elsewhere/work.py"]) == [project.parent / "project/../elsewhere"]
    assert directories_of(["json"]) == [project]
