"""Finding task functions, and what the user is told when there are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tasklib.cli.loading import load
from tasklib.cli.report import CommandError

TASKS = """
from tasklib import task

@task
def send_email(to: str) -> None: ...

@task(name="sms.send")
def send_sms(to: str) -> None: ...

GROUP = [send_email]
BY_NAME = {"sms": send_sms}
EMPTY = []

def plain(): ...
"""

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def tasks(project: Path) -> Path:
    file = project / "mailing.py"
    file.write_text(TASKS)
    return file


def refusal(*targets: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        load(targets)
    return caught.value


@pytest.mark.usefixtures("tasks")
def test_module_in_the_current_directory_serves_all_that_is_registered() -> None:
    loaded = load(["mailing"])
    assert (loaded.modules, loaded.names) == (("mailing",), None)


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("mailing:send_email", ("send_email",)),
        ("mailing:GROUP", ("send_email",)),
        ("mailing:BY_NAME", ("sms.send",)),
        ("mailing.py:send_sms", ("sms.send",)),
    ],
)
def test_object_serves_only_what_it_names(target: str, names: tuple[str, ...]) -> None:
    assert load([target]).names == names


@pytest.mark.usefixtures("tasks")
def test_object_beside_a_module_serves_both(project: Path) -> None:
    (project / "other.py").write_text("from tasklib import task\n@task\ndef resize(): ...\n")
    assert set(load(["other", "mailing:send_email"]).names or ()) == {"resize", "send_email"}


def test_module_as_an_object_serves_its_tasks(project: Path, tasks: Path) -> None:
    (project / "app.py").write_text("import mailing\n")
    assert set(load(["app:mailing"]).names or ()) == {"send_email", "sms.send"}


def test_package_that_imports_its_tasks_has_them(project: Path) -> None:
    (project / "jobs").mkdir()
    (project / "jobs/__init__.py").write_text("from . import mail\n")
    (project / "jobs/mail.py").write_text(TASKS)
    for target in ("jobs", "jobs.mail", "jobs/mail.py", "jobs/", "jobs/__init__.py"):
        assert load([target]).modules[0] in ("jobs", "jobs.mail")


def test_file_elsewhere_is_imported_from_where_it_is(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "work.py").write_text("import beside\nfrom tasklib import task\n@task\ndef work_there(): ...\n")
    (elsewhere / "beside.py").write_text("")
    assert load([str(elsewhere / "work.py")]).modules == ("work",)
    assert load(["../elsewhere/work.py"]).modules == ("work",)
    for name in ("work", "beside"):
        del sys.modules[name]


@pytest.mark.usefixtures("tasks")
def test_misspelt_module_is_guessed(project: Path) -> None:
    assert str(refusal("maling")) == (
        f"no module named maling in {project} or on the Python path. Did you mean 'mailing'? "
        "Check the spelling, and run the command in the directory that holds it."
    )


@pytest.mark.usefixtures("tasks")
def test_dot_instead_of_a_colon_is_guessed() -> None:
    assert str(refusal("mailing.send_email")) == (
        "no module named 'mailing.send_email': send_email is in the module mailing. Did you mean mailing:send_email?"
    )


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("mailing:send_emial", "mailing:send_emial: mailing has no 'send_emial'. Did you mean 'send_email'?"),
        ("mailing:plain", "mailing:plain is a function without @task. Name a task function, or a list of them."),
        ("mailing:EMPTY", "mailing:EMPTY is a list that holds no tasks. Name a task function, or a list of them."),
        ("", "'' is not a module. Give its full name (app.tasks) or its file (tasks.py)."),
        (".mailing", "'.mailing' is not a module. Give its full name (app.tasks) or its file (tasks.py)."),
    ],
)
def test_what_holds_no_tasks_is_said(target: str, words: str) -> None:
    assert str(refusal(target)) == words


def test_file_that_is_not_there(project: Path) -> None:
    (project / "folder").mkdir()
    assert str(refusal("nothing.py")) == f"nothing.py: there is no file of this name in {project}."
    assert "a directory without __init__.py" in str(refusal("folder/"))


def test_module_without_tasks_says_how_to_make_one(project: Path) -> None:
    (project / "bare.py").write_text("def work(): ...\n")
    assert str(refusal("bare")) == (
        f"bare has no tasks ({project}/bare.py). Put @task (from tasklib import task) above the functions that a "
        "worker should run, or name the module that has them."
    )


def test_module_that_fails_shows_the_users_own_frames(project: Path) -> None:
    (project / "broken.py").write_text("import settings\n")
    (project / "settings.py").write_text("import json\n\ndef read():\n    json.loads('{')\n\nread()\n")
    error = refusal("broken")
    assert str(error).startswith("importing broken failed: json.decoder.JSONDecodeError: Expecting property name")
    frames = [line.strip() for line in error.detail.splitlines() if line.startswith("  File ")]
    assert frames == [
        f'File "{project}/broken.py", line 1, in <module>',
        f'File "{project}/settings.py", line 6, in <module>',
        f'File "{project}/settings.py", line 4, in read',
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def x(:\n", "importing broken failed: SyntaxError: invalid syntax"),
        ("import not_installed\n", "importing broken failed: ModuleNotFoundError: No module named 'not_installed'"),
        ("import sys; sys.exit(3)\n", "importing broken failed: it called sys.exit(3)"),
        (
            "from tasklib import task\n@task\ndef gen(): yield\n",
            "importing broken failed: tasklib.errors.InvalidTaskFunction: gen is a generator; "
            "a task returns one value.",
        ),
    ],
)
def test_import_that_fails_is_one_line_below_its_traceback(project: Path, source: str, words: str) -> None:
    (project / "broken.py").write_text(source)
    error = refusal("broken")
    assert str(error) == words
    assert "broken.py" in error.detail
    assert "tasklib/cli" not in error.detail
