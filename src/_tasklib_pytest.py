"""TaskLib's pytest plugin: a fresh database for each test, and inline mode. Installing TaskLib is all it takes.

    def test_signing_up_sends_an_email(tasklib_app):
        sign_up("a@example.com")
        assert_submitted(send_email, kwargs={"to": "a@example.com"})

pytest imports this file in every run where TaskLib is installed. So it lies outside the package, whose
import takes most of a second, and imports TaskLib only where a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tasklib import Client, Config
    from tasklib.testing import Inline
    from tasklib.testing.reused_databases import ReusedDatabases

__all__ = [
    "_tasklib_databases",
    "_tasklib_template",
    "pytest_configure",
    "pytest_itemcollected",
    "tasklib_app",
    "tasklib_client",
    "tasklib_database",
    "tasklib_inline",
    "tasklib_server_url",
    "tasklib_settings",
]

_MARKER = "tasklib_inline"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_MARKER}(raise_errors=True, connection=None): run tasks where they are submitted."
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """A marked test uses the fixture of the same name, first of all: its other fixtures may submit tasks."""
    names: list[str] | None = getattr(item, "fixturenames", None)
    if names is not None and _MARKER not in names and item.get_closest_marker(_MARKER):
        names.insert(0, _MARKER)


@pytest.fixture(scope="session")
def tasklib_settings() -> dict[str, Any]:
    """Fields of `tasklib.Config` for the fixtures below, e.g. {"schema": "jobs"}. Override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def tasklib_server_url() -> Iterator[str]:
    """A server on which tests may create databases: TASKLIB_TEST_DATABASE_URL, or an embedded one."""
    from tasklib.errors import TaskLibError
    from tasklib.testing import databases

    with ExitStack() as stack:
        try:
            url = stack.enter_context(databases.server())
        except TaskLibError as e:
            pytest.fail(str(e), pytrace=False)
        yield url


@pytest.fixture(scope="session")
def _tasklib_template(tasklib_server_url: str, tasklib_settings: dict[str, Any]) -> Iterator[str]:
    from tasklib.testing import databases

    with databases.template(tasklib_server_url, **tasklib_settings) as name:
        yield name


@pytest.fixture(scope="session")
def _tasklib_databases(tasklib_server_url: str, _tasklib_template: str) -> Iterator[ReusedDatabases]:
    from tasklib.testing.reused_databases import ReusedDatabases

    with closing(ReusedDatabases(tasklib_server_url, _tasklib_template)) as reused:
        yield reused


@pytest.fixture
def tasklib_database(_tasklib_databases: ReusedDatabases) -> Iterator[str]:
    """The URL of a migrated database of this test's own, with nothing in it."""
    with _tasklib_databases.lend() as url:
        yield url


@pytest.fixture
def tasklib_client(tasklib_database: str, tasklib_settings: dict[str, Any]) -> Iterator[Client]:
    """A `tasklib.Client` of the fresh database."""
    from tasklib import Client, Config

    with Client(Config(tasklib_database, **tasklib_settings)) as client:
        yield client


@pytest.fixture
def tasklib_app(tasklib_database: str, tasklib_settings: dict[str, Any]) -> Iterator[Config]:
    """`tasklib.init()` on the fresh database, for this test; yields the Config."""
    import tasklib
    from tasklib.client.default import configured

    before = configured()
    yield tasklib.init(tasklib.Config(tasklib_database, **tasklib_settings))
    tasklib.close()
    if before is not None:
        tasklib.init(before)


@pytest.fixture
def tasklib_inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    """Inline mode for this test, with the options of the marker of the same name if there is one."""
    from tasklib.testing import inline

    marker = request.node.get_closest_marker(_MARKER)
    with inline(**(marker.kwargs if marker else {})) as ran:
        yield ran
