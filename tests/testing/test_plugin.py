"""The pytest plugin, as a user meets it: a test file of theirs, and nothing else."""

from __future__ import annotations

import os
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

TASKS = """
    import pytest
    import tasklib
    from tasklib import task
    from tasklib.testing import assert_not_submitted, assert_submitted, drain, drain_sync

    @task(max_retries=1)
    def double(n: int) -> int:
        return 2 * n

    def run(n):
        return double.submit_sync(n)
"""


@pytest.fixture
def user(pytester: pytest.Pytester, server_url: str, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A user's project. The plugin is named here, as it is not installed; pytest finds an installed one by itself."""
    monkeypatch.setenv("TASKLIB_TEST_DATABASE_URL", server_url)
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers -p _tasklib_pytest -p pytest_asyncio.plugin\nasyncio_mode = auto"
    )
    return pytester


def write(user: pytest.Pytester, source: str) -> None:
    user.makepyfile(test_user=textwrap.dedent(TASKS + source))


@pytest.mark.direct(reason="it compares URLs, and ours leads through the pooler")
def test_each_test_has_a_database_of_its_own(user: pytest.Pytester) -> None:
    write(
        user,
        """
    @pytest.mark.parametrize("n", [1, 2])
    def test_app(tasklib_app, n):
        assert tasklib.sync.list_tasks() == []
        task_id = run(n)
        [found] = assert_submitted(double, kwargs={"n": n}, count=1)
        assert drain_sync().ids == [task_id]
        assert tasklib.sync.wait_for(task_id) == 2 * n

    async def test_app_async(tasklib_app, tasklib_database):
        assert tasklib_app == tasklib.Config(tasklib_database)
        await double.submit(3)
        assert_submitted(double, kwargs={"n": 3})
        assert (await drain()).counts == {"completed": 1}

    def test_client(tasklib_client, tasklib_database):
        assert tasklib_client.config.database_url == tasklib_database
        assert tasklib_client.list_tasks() == []
        tasklib_client.submit_task(double, n=1)
        assert drain_sync(tasklib_database).counts == {"completed": 1}

    def test_client_and_app_share_the_database(tasklib_client, tasklib_app):
        assert tasklib_client.get_task(run(1)).name == "double"

    def test_nothing_is_left_behind():
        with pytest.raises(tasklib.errors.NotInitialized):
            run(1)
        """,
    )
    user.runpytest_subprocess().assert_outcomes(passed=6)


def test_inline_mode_comes_by_fixture_and_by_marker(user: pytest.Pytester) -> None:
    write(
        user,
        """
    @pytest.fixture
    def prepared():
        return run(1)

    def test_fixture(tasklib_inline):
        assert tasklib.sync.wait_for(run(1)) == 2
        assert [t.kwargs for t in tasklib_inline.tasks] == [{"n": 1}]

    @pytest.mark.usefixtures("tasklib_inline")
    async def test_usefixtures():
        assert await tasklib.wait_for(await double.submit(2)) == 4

    @pytest.mark.tasklib_inline
    def test_marker(prepared):
        assert_submitted(double, count=1)

    @pytest.mark.tasklib_inline(raise_errors=False)
    class TestClass:
        async def test_marker_with_options(self, tasklib_inline):
            @task
            def fail():
                raise ValueError
            await fail.submit()
            assert isinstance(tasklib_inline.tasks[0].error, ValueError)

    def test_without():
        with pytest.raises(tasklib.errors.NotInitialized):
            run(1)
        """,
    )
    user.runpytest_subprocess().assert_outcomes(passed=5)


@pytest.mark.long
def test_settings_are_the_users_to_override(user: pytest.Pytester) -> None:
    write(
        user,
        """
    @pytest.fixture(scope="session")
    def tasklib_settings():
        return {"schema": "jobs", "max_retries": 7}

    def test_schema(tasklib_app, tasklib_client):
        assert (tasklib_app.schema, tasklib_app.max_retries) == ("jobs", 7)
        assert tasklib_client.get_task(run(1)) is not None
        """,
    )
    user.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.long
def test_configuration_from_before_the_test_is_back_after_it(user: pytest.Pytester) -> None:
    write(
        user,
        """
    tasklib.init("postgresql://app@nowhere.invalid/app")

    def test_first(tasklib_app):
        run(1)

    def test_second():
        from tasklib.client.default import configured
        assert configured().database_url == "postgresql://app@nowhere.invalid/app"
        """,
    )
    user.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.long
def test_it_works_in_parallel(user: pytest.Pytester) -> None:
    write(
        user,
        """
    @pytest.mark.parametrize("n", range(6))
    def test_app(tasklib_app, n):
        run(n)
        assert drain_sync().counts == {"completed": 1}
        """,
    )
    user.runpytest_subprocess("-p", "xdist", "-n", "2").assert_outcomes(passed=6)


def test_failed_assertion_shows_the_tasks_and_none_of_our_code(user: pytest.Pytester) -> None:
    write(
        user,
        """
    def test_app(tasklib_inline):
        run(1)
        assert_submitted(double, kwargs={"n": 2})
        """,
    )
    result = user.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E   * double was not submitted with kwargs={'n': 2}.", "E   * kwargs?'n'? is 1, expected 2"]
    )
    result.stdout.no_fnmatch_line("*raise AssertionError*")


@pytest.mark.long
def test_missing_server_is_one_clear_error(user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKLIB_TEST_DATABASE_URL", "postgresql://u@127.0.0.1:1/x")
    write(user, "    def test_app(tasklib_app): ...")
    result = user.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["can't connect to PostgreSQL at u@127.0.0.1:1/x:*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_plugin_costs_a_run_that_doesn_t_use_it_no_import(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import sys

        def test_light():
            assert "_tasklib_pytest" in sys.modules
            assert [m for m in sys.modules if m.split(".")[0] in ("tasklib", "sqlalchemy", "psycopg", "pydantic")] == []
        """
    )
    user.runpytest_subprocess().assert_outcomes(passed=1)


def test_plugin_is_what_the_distribution_announces() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"tasklib": "_tasklib_pytest"}
    assert "src/_tasklib_pytest.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]


@pytest.mark.long
def test_embedded_server_is_used_without_the_variable(user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_TEST_DATABASE_URL", raising=False)
    write(user, "    def test_app(tasklib_app):\n        assert run(1)")
    user.runpytest_subprocess().assert_outcomes(passed=1)
