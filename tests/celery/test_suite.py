"""Celery's own integration tests against `tasklib.celery`. They need a source that is not kept here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.celery.suite.differences import DIFFERENT, NOT_RUN

SOURCE = os.environ.get("TASKLIB_CELERY_SOURCE", "")
SUITE = Path(__file__).parent / "suite"
ROOT = Path(__file__).parents[2]
COUNTS = {"passed": 166, "failure": 64, "skipped": 7}  # of Celery's commit 5dc781f0b
RUN = ("test_canvas.py", "test_tasks.py", "test_loader.py")
IN_PLACE_OF = {
    "from celery.backends.base import states": "from tasklib.celery import states",
    "from celery.backends.base import BaseKeyValueStoreBackend": "from suite_stand_ins import BaseKeyValueStoreBackend",
    "from celery.canvas import StampingVisitor": "from suite_stand_ins import StampingVisitor",
    "before_task_publish, task_received": "before_task_publish\nfrom suite_stand_ins import task_received",
    "from celery.signals import task_received": "from suite_stand_ins import task_received",
    "from celery.worker.control import control_command": "from suite_stand_ins import control_command",
    "from celery.worker import state as worker_state": "from suite_stand_ins import worker_state",
    "from celery.utils.serialization import": "from suite_stand_ins import",
    "import Reject, SoftTimeLimitExceeded": "import Reject\nfrom suite_stand_ins import SoftTimeLimitExceeded",
    "soft_time_limit=2, time_limit=1": "time_limit=1",
    "time_limit=60, soft_time_limit=45": "time_limit=60",
    "import billiard as multiprocessing": "import multiprocessing",
    "import celery\n": "import tasklib.celery as celery\nimport tasklib.celery.exceptions\n",
    "from celery": "from tasklib.celery",
    # A task that runs is STARTED, whatever `task_track_started` says.
    "if status != 'PENDING':": "if status not in ('PENDING', 'STARTED'):",
    "tik + 5:": "tik + 60:",
    # A test that waits in vain takes as long; one that waits for a busy machine should not fail.
    "TIMEOUT = 60": "TIMEOUT = 30",
    "TIMEOUT = 10\n": "TIMEOUT = 30\n",
}


def prepared(source: Path, directory: Path) -> None:
    """Copy Celery's tests, with their imports changed and our fixtures."""
    shutil.copytree(source / "t/integration", directory / "t/integration")
    (directory / "t/__init__.py").touch()
    for path in (directory / "t/integration").glob("*.py"):
        text = path.read_text()
        for theirs, ours in IN_PLACE_OF.items():
            text = text.replace(theirs, ours)
        path.write_text(text)
    for path in SUITE.glob("[a-z]*.py"):
        shutil.copy(path, directory)
    (directory / "suite_conftest.py").rename(directory / "t/integration/conftest.py")


def outcomes(url: str, directory: Path) -> dict[str, str]:
    """What became of each test: passed, failed or skipped."""
    report = directory / "report.xml"
    environment = {**os.environ, "TASKLIB_DATABASE_URL": url, "PYTHONPATH": str(directory)}
    subprocess.run([sys.executable, "-m", "tasklib", "migrate"], env=environment, check=True, capture_output=True)
    files = [f"t/integration/{name}" for name in RUN]
    options = ["-p", "no:cacheprovider", "-c", os.devnull, "-o", "python_classes=test_*", "--timeout=400"]
    command = [sys.executable, "-m", "pytest", f"--rootdir={directory}", f"--junitxml={report}", *options, *files]
    subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=False)
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        found[name] = next((kind.tag for kind in case if kind.tag in {"failure", "error", "skipped"}), "passed")
    return found


@pytest.mark.long
@pytest.mark.skipif(not SOURCE, reason="needs TASKLIB_CELERY_SOURCE, a checkout of Celery")
def test_celerys_own_integration_tests_pass(empty_database_url: str, tmp_path: Path) -> None:
    prepared(Path(SOURCE), tmp_path)
    found = outcomes(empty_database_url, tmp_path)
    failed = {name.partition("[")[0] for name, outcome in found.items() if outcome in ("failure", "error")}
    assert failed == {name for names in DIFFERENT.values() for name in names}
    assert Counter("failure" if outcome == "error" else outcome for outcome in found.values()) == COUNTS


def test_the_page_lists_every_test_that_differs_and_the_counts() -> None:
    page = (ROOT / "docs/reference/celery-tests.md").read_text()
    for reason, names in DIFFERENT.items():
        assert f"| {reason} | {', '.join(f'`{name}`' for name in names)} |" in page
    for file, reason in NOT_RUN.items():
        assert f"| `{file}` | {reason} |" in page
    assert f"{COUNTS['passed']} of {sum(COUNTS.values())} pass" in page
    assert f"{COUNTS['skipped']} are skipped" in page
    assert f"{COUNTS['failure']} differ" in page
