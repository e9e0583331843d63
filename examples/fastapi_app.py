"""A FastAPI application that submits in the request's transaction, with the dashboard behind its own login.

Serve it with `uvicorn fastapi_app:app`, run its worker with `tasklib worker fastapi_app`. As a program it calls itself.
It prints:

    201, and then the task is completed
    without a login the dashboard answers 303
    logged in it answers 200
"""

import os
import sys
from typing import Annotated
from uuid import UUID

import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.orm import Session, sessionmaker
from starlette.requests import HTTPConnection
from tasklib import task
from tasklib.fastapi import DashboardUser, TaskClient, TaskLib, committed
from tasklib.testing import drain_sync

url = os.environ["TASKLIB_DATABASE_URL"]
engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)
Transaction = Annotated[Session, committed(sessionmaker(engine))]


@task
def send_receipt(email: str) -> str:
    return f"sent to {email}"


async def who(request: HTTPConnection) -> DashboardUser | None:
    name = request.cookies.get("user")
    return DashboardUser(name, role="operator") if name else None


tasks = TaskLib(url)
app = FastAPI(lifespan=tasks.lifespan)
app.mount("/tasklib", tasks.server(login=who, login_url="/login"))


@app.post("/orders", status_code=201)
def place_order(email: str, session: Transaction) -> UUID:
    session.execute(text("CREATE TABLE IF NOT EXISTS orders (email text)"))
    session.execute(text("INSERT INTO orders VALUES (:email)"), {"email": email})
    return send_receipt.on(session).submit(email=email)


@app.get("/orders/{task_id}")
async def state(task_id: UUID, client: TaskClient) -> str:
    found = await client.get_task(task_id)
    return found.state if found else "unknown"


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # the log of requests
    with TestClient(app, follow_redirects=False) as browser:
        placed = browser.post("/orders?email=ada@example.com")
        drain_sync()
        print(f"{placed.status_code}, and then the task is {browser.get(f'/orders/{placed.json()}').json()}")
        html = {"accept": "text/html"}
        print("without a login the dashboard answers", browser.get("/tasklib/", headers=html).status_code)
        browser.cookies.set("user", "ann")
        print("logged in it answers", browser.get("/tasklib/", headers=html).status_code)
