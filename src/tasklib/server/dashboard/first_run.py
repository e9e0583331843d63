"""The first run: while no task has run yet, the overview shows what to type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from tasklib.config import Config
from tasklib.formatting import shell_word
from tasklib.server.services import Services
from tasklib.store import search, stats
from tasklib.store.fleet import WorkerInfo
from tasklib.store.search import Part, Search

_MOST_NAMES = 12


@dataclass(frozen=True, slots=True)
class FirstRun:
    """What the commands need to know."""

    environment: str
    """Lines for a shell that say which database."""
    names: list[str]
    """What live workers wait for; none: there is no worker yet."""

    @property
    def submit(self) -> str:
        """A command that submits the first of these names."""
        return f"{self.environment}\ntasklib submit {shell_word(self.names[0])} --wait"


async def first_run(services: Services, workers: Iterable[WorkerInfo]) -> FirstRun | None:
    """None once there is a task, or one was counted: tasks don't stay forever."""
    newest = await services.run(search.newest(Search(), Part(1, 1)))
    counted = await services.run(stats.totals())
    if newest.tasks or counted:
        return None
    names = sorted({name for worker in workers for name in worker.names or ()})
    return FirstRun(environment(services.client.config), names[:_MOST_NAMES])


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
