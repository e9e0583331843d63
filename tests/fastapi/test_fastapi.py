"""TaskLib in a FastAPI application: lifespan, client, sessions, and its dashboard behind the application's login."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

import tasklib
from tasklib import Config, NotInitialized, TaskFunction, task
from tasklib.client.default import configured, default_client
from tasklib.errors import ConfigError
from tasklib.fastapi import DashboardUser, TaskClient, TaskLib, committed
from tasklib.testing import drain_sync

ROLES = {"ann": "admin", "bob": "viewer"}


async def who(request: Any) -> DashboardUser | None:
    """The login of the application: a cookie."""
    name = request.cookies.get("user")
    return DashboardUser(name, ROLES[name]) if name else None


@pytest.fixture
def send(config: Config) -> TaskFunction[[str], str]:
    @task
    def send(to: str) -> str:
        return f"sent to {to}"

    return send


@pytest.fixture
def browser(config: Config, send: TaskFunction[[str], str]) -> Iterator[TestClient]:
    """A browser that looks at an application with everything mounted at /tasks, a path that the dashboard has too."""
    tasks = TaskLib(config)
    app = FastAPI(lifespan=tasks.lifespan)
    app.mount("/tasks", tasks.server(login=who, login_url="/sign-in"))

    @app.post("/sign-up")
    async def sign_up(email: str) -> UUID:
        return await send.submit(to=email)

    @app.get("/state/{task_id}")
    async def state(task_id: UUID, client: TaskClient) -> str:
        found = await client.get_task(task_id)
        return found.state if found else "unknown"

    with TestClient(app, follow_redirects=False) as browser:
        yield browser


HTML = {"accept": "text/html"}


def test_the_module_level_calls_and_the_client_work_while_the_application_runs(browser: TestClient) -> None:
    task_id = browser.post("/sign-up?email=ada@example.com").json()
    assert browser.get(f"/state/{task_id}").json() == "pending"
    drain_sync()
    assert browser.get(f"/state/{task_id}").json() == "completed"


def test_after_the_application_nothing_is_left_open(config: Config) -> None:
    tasks = TaskLib(config)
    with TestClient(FastAPI(lifespan=tasks.lifespan)):
        assert default_client().config == config
    with pytest.raises(NotInitialized):
        default_client()


def test_without_a_url_an_application_under_test_works_in_the_database_of_the_test(
    tasklib_app: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKLIB_DATABASE_URL", "postgresql://elsewhere.invalid/other")
    made = TaskLib()
    with TestClient(FastAPI(lifespan=made.lifespan)):
        assert made.config is tasklib_app
    assert configured() is tasklib_app, "what the test opened stays open"
    tasklib.close()
    assert made.config.database_url == "postgresql://elsewhere.invalid/other"


def test_a_browser_of_somebody_who_is_not_logged_in_goes_to_the_applications_login(browser: TestClient) -> None:
    answer = browser.get("/tasks/", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert browser.get("/tasks/api/v1/tasks").status_code == 401


def test_the_dashboard_is_served_below_its_path_with_links_that_stay_there(browser: TestClient) -> None:
    browser.cookies.set("user", "bob")
    task_id = browser.post("/sign-up?email=ada@example.com").json()
    page = browser.get("/tasks/", headers=HTML)
    assert page.status_code == 200
    assert 'href="/tasks/tasks' in page.text
    for path in ("/tasks/tasks", f"/tasks/tasks/{task_id}", "/tasks/workers"):
        assert browser.get(path, headers=HTML).status_code == 200
    assert browser.get(f"/tasks/api/v1/tasks/{task_id}").json()["task_type"] == "send"
    assert browser.get("/tasks/health/live").status_code == 200


def test_what_a_user_may_do_depends_on_the_role_and_the_audit_has_the_name(browser: TestClient) -> None:
    task_id = browser.post("/sign-up?email=ada@example.com").json()
    place = f"/tasks/api/v1/tasks/{task_id}"
    browser.cookies.set("user", "bob")
    assert browser.delete(place).status_code == 403
    browser.cookies.set("user", "ann")
    assert browser.delete(place, headers={"origin": "https://evil.example"}).status_code == 403
    assert browser.delete(place).status_code == 200
    with pytest.raises(ConfigError, match="must be one of"):
        DashboardUser("eve", "emperor")
    assert [(entry.action, entry.actor) for entry in default_client().audit()] == [("task.cancel", "ann")]


def test_programs_use_tokens_as_ever(browser: TestClient) -> None:
    secret = default_client().create_token("ci", roles="viewer").text
    headers = {"authorization": f"Bearer {secret}"}
    assert browser.get("/tasks/api/v1/tasks", headers=headers).status_code == 200


@pytest.mark.parametrize("is_async", [True, False], ids=["async session", "sync session"])
def test_a_task_of_the_requests_session_is_committed_before_the_answer_or_not_at_all(
    config: Config, db: psycopg.Connection, send: TaskFunction[[str], str], is_async: bool
) -> None:
    db.execute("CREATE TABLE users (email text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    url = config.database_url.replace("postgresql://", "postgresql+psycopg://", 1)
    tasks = TaskLib(config)
    app = FastAPI(lifespan=tasks.lifespan)
    insert = text("INSERT INTO users VALUES (:email)")
    if is_async:
        async_sessions = async_sessionmaker(create_async_engine(url, poolclass=NullPool))

        in_transaction = committed(async_sessions)

        async def create_async(email: str, session: AsyncSession = in_transaction) -> UUID:
            await session.execute(insert, {"email": email})
            return await send.on(session).submit(to=email)

        app.post("/users", status_code=201)(create_async)
    else:
        sessions = sessionmaker(create_engine(url, poolclass=NullPool))

        in_transaction = committed(sessions)

        def create(email: str, session: Session = in_transaction) -> UUID:
            session.execute(insert, {"email": email})
            return send.on(session).submit(to=email)

        app.post("/users", status_code=201)(create)

    class Looks:
        """Looks at the table when the answer begins."""

        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def sent(message: Any) -> None:
                if message["type"] == "http.response.start":
                    seen.append(_count(db))
                await send(message)

            await self.app(scope, receive, sent)

    seen: list[int] = []
    app.add_middleware(Looks)
    with TestClient(app, raise_server_exceptions=False) as browser:
        assert browser.post("/users?email=cleo@example.com").status_code == 201
        # This one is refused by the database at the commit.
        assert browser.post("/users?email=cleo@example.com").status_code == 500
    assert seen[0] == 1
    assert _count(db) == 1


def _count(db: psycopg.Connection) -> int:
    row = db.execute("SELECT count(*) FROM tasks").fetchone()
    assert row is not None
    return int(row[0])
