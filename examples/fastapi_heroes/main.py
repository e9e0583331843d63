"""The heroes of FastAPI's tutorial on SQL databases, with TaskLib: a welcome after each new hero, and the dashboard.

export TASKLIB_DATABASE_URL=postgresql://app@localhost/heroes
tasklib migrate
uvicorn main:app & tasklib worker main
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query
from sqlalchemy.orm import sessionmaker
from sqlmodel import Field, Session, SQLModel, create_engine, select
from starlette.requests import HTTPConnection
from tasklib import task
from tasklib.fastapi import DashboardUser, TaskLib, committed


class HeroBase(SQLModel):
    name: str = Field(index=True)
    age: int | None = Field(default=None, index=True)


class Hero(HeroBase, table=True):
    id: int | None = Field(default=None, primary_key=True)
    secret_name: str
    welcomed: bool = False


class HeroPublic(HeroBase):
    id: int
    welcomed: bool


class HeroCreate(HeroBase):
    secret_name: str


tasks = TaskLib()  # reads TASKLIB_DATABASE_URL
engine = create_engine(tasks.config.database_url.replace("postgresql://", "postgresql+psycopg://", 1))
sessions = sessionmaker(engine, class_=Session)
SessionDep = Annotated[Session, committed(sessions)]


@task(max_retries=5)
def welcome(hero_id: int) -> str:
    """What follows from a new hero, outside of the request."""
    with sessions.begin() as session:
        hero = session.get_one(Hero, hero_id)
        hero.welcomed = True
        return f"welcome, {hero.name}"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    SQLModel.metadata.create_all(engine)
    async with tasks.lifespan(app):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/heroes/", response_model=HeroPublic)
def create_hero(hero: HeroCreate, session: SessionDep) -> Hero:
    """The hero and the task are committed together, before the answer is sent."""
    created = Hero.model_validate(hero)
    session.add(created)
    session.flush()
    welcome.on(session).submit(hero_id=created.id)
    return created


@app.get("/heroes/", response_model=list[HeroPublic])
def read_heroes(session: SessionDep, offset: int = 0, limit: Annotated[int, Query(le=100)] = 100) -> list[Hero]:
    return list(session.exec(select(Hero).order_by(Hero.id).offset(offset).limit(limit)))


@app.get("/heroes/{hero_id}", response_model=HeroPublic)
def read_hero(hero_id: int, session: SessionDep) -> Hero:
    hero = session.get(Hero, hero_id)
    if hero is None:
        raise HTTPException(404, "Hero not found")
    return hero


async def operator(request: HTTPConnection) -> DashboardUser | None:
    """Who may see the dashboard at /tasklib/; your own login instead of this cookie."""
    known = request.cookies.get("secret") == os.environ.get("DASHBOARD_SECRET", "change me")
    return DashboardUser("operator", role="operator") if known else None


app.mount("/tasklib", tasks.server(login=operator, login_url="/docs"))
