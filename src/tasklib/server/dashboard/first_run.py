"""The first run: a database in which nothing has happened yet shows what to type."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from tasklib.config import Config
from tasklib.formatting import shell_word
from tasklib.server.services import Services
from tasklib.store import fleet, search
from tasklib.store.search import Part, Search


@dataclass(frozen=True, slots=True)
class FirstRun:
    """What the commands need to know."""

    environment: str
    """Lines for a shell that say which database."""


async def first_run(services: Services) -> FirstRun | None:
    """None once there is a task, or ever was a worker."""
    if await services.run(fleet.workers()) or (await services.run(search.newest(Search(), Part(1, 1)))).tasks:
        return None
    return FirstRun(environment(services.client.config))


def environment(config: Config) -> str:
    """`export TASKLIB_DATABASE_URL=...`, without the password."""
    lines = [f"export TASKLIB_DATABASE_URL={shell_word(_url(config.database_url))}"]
    if config.schema:
        lines.append(f"export TASKLIB_SCHEMA={shell_word(config.schema)}")
    return "\n".join(lines)


def _url(database_url: str) -> str:
    parts = {name: str(value) for name, value in conninfo_to_dict(database_url).items() if value is not None}
    user = f"{quote(parts['user'], safe='')}@" if "user" in parts else ""
    host, port = parts.get("host", ""), f":{parts['port']}" if "port" in parts else ""
    database = quote(parts.get("dbname", ""), safe="")
    if host.startswith("/"):  # a socket
        return f"postgresql://{user}{port}/{database}?host={quote(host, safe='')}"
    return f"postgresql://{user}{host}{port}/{database}"
