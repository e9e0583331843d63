"""What the routes work with: one of each for the whole server."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, TypeVar
from uuid import UUID

import structlog

from tasklib.backends.postgres.notifier import Notifier
from tasklib.backends.postgres.remote.workers import RemoteWorkers
from tasklib.client.async_clients import AsyncClient
from tasklib.config import Config
from tasklib.db.database import AsyncDatabase
from tasklib.db.query import Query
from tasklib.db.startup import wait_for_database
from tasklib.errors import ConfigError, DatabaseUnavailable
from tasklib.migrations.revisions import require_current, require_shard, require_utf8
from tasklib.server.caps import Caps
from tasklib.server.leading import Leading
from tasklib.server.redaction import Redaction
from tasklib.server.settings import ServerSettings
from tasklib.server.token_cache import TokenCache, TokenWatch
from tasklib.server.watch import TaskWatch
from tasklib.sharding.missing import report
from tasklib.store import schema, tokens

T = TypeVar("T")


@dataclass
class Services:
    """Opened when the server starts, closed when it ends."""

    config: Config
    settings: ServerSettings
    client: AsyncClient
    tokens: TokenCache
    notifier: Notifier
    remote: RemoteWorkers
    version: str
    revealed: dict[tuple[str, UUID], float] = field(default_factory=dict)
    """Who was shown the secrets of which task, and when: not every refresh of a page is recorded."""
    leading: Leading | None = None
    """None: this server takes no part in the election."""
    caps: Caps = field(init=False)
    redaction: Redaction = field(init=False)
    watch: TaskWatch = field(init=False)
    token_watch: TokenWatch = field(init=False)

    def __post_init__(self) -> None:
        self.caps = Caps(self.settings)
        self.redaction = Redaction(self.settings.redact)
        self.watch = TaskWatch(self.run, lambda: self.notifier.is_stopped)
        self.token_watch = TokenWatch(self.client.database, self.tokens, self._token_ended)

    @classmethod
    async def open(cls, config: Config, settings: ServerSettings, *, has_login: bool = False) -> Services:
        """Refuses to serve a schema of another version, and without token and login unless `no_auth` says so."""
        timeout = min(config.statement_timeout_seconds, settings.database_timeout_seconds)
        config = config.with_changes(statement_timeout_seconds=timeout, backpressure=True)
        home = config.for_shard(config.home.number) if config.shards else config
        await wait_for_database(home, _say_what_is_awaited)
        client = AsyncClient(config)
        try:
            await require_schema(config, client)
            has_tokens = await client.database.run(tokens.any_ever())
            require_locks(settings, has_tokens or has_login)
            place = await client.database.run(schema.where_is_tasks(home.schema))
        except BaseException:
            client.close()
            raise
        token_cache, notifier = (
            TokenCache(client.database, is_open=settings.no_auth and not has_tokens),
            Notifier(home, client.database, role="server listener", on_silence=_say_that_it_polls),
        )
        made = cls(config, settings, client, token_cache, notifier, RemoteWorkers(home, notifier), version())
        made.notifier.start(place or "public")
        made.tokens.start()
        made.token_watch.start()
        return made

    async def run(self, query: Query[T]) -> T:
        """Run one query of the store."""
        return await self.client.database.run(query)

    def _token_ended(self) -> None:
        self.tokens.forget()
        self.notifier.ring()

    def stop(self) -> None:
        """The server is shutting down: end all long-polling requests."""
        self.notifier.stop()

    def lead(self, config: Config) -> None:
        """Take part in the election, with the statement timeout of the configuration, not that of requests.

        Not over several shards, each of which has a leader of its own: workers lead them.
        """
        if config.shards:
            return
        self.leading = Leading(config, self.remote.db, self.notifier)

    async def close(self) -> None:
        self.stop()
        if self.leading is not None:
            await self.leading.close()
        await self.notifier.close()
        await self.token_watch.close()
        await self.remote.close()
        await self.tokens.close()
        self.client.close()


def _say_what_is_awaited(reason: str) -> None:
    log: Any = structlog.get_logger("tasklib.server")
    log.warning("waiting for the database", reason=reason)


def _say_that_it_polls(reason: str) -> None:
    log: Any = structlog.get_logger("tasklib.server")
    log.warning("notifications do not arrive, polling instead", reason=reason)


def version() -> str:
    """The version of TaskLib that serves."""
    try:
        return metadata.version("tasklib-pg")
    except metadata.PackageNotFoundError:  # run from its sources
        return "0"


async def require_schema(config: Config, client: AsyncClient) -> None:
    """SchemaError unless our tables are there, in this version, on every shard that can be reached."""
    if not config.shards:
        await _require_schema(config, client.database)
        return
    missing = {}
    for number in (shard.number for shard in config.shards):
        one = client.on_shard(number)
        try:
            await _require_schema(one.config, one.database)
        except DatabaseUnavailable as e:
            if number == config.home.number:  # tokens are there: else no request could be let in
                raise
            missing[number] = str(e)
    report(missing)


async def _require_schema(config: Config, database: AsyncDatabase) -> None:
    require_utf8(*await database.run(schema.encoding()))
    place = await database.run(schema.where_is_tasks(config.schema))
    revision = None if place is None else await database.run(schema.revision())
    require_current(revision, config.schema)
    require_shard(await database.run(schema.shard()), config.shard, place)


def require_locks(settings: ServerSettings, has_tokens: bool) -> None:
    """ConfigError if there is no token and `no_auth` is not set."""
    if not has_tokens and not settings.no_auth:
        raise ConfigError(
            "there is no API token yet. Create the first one: tasklib token create NAME --role admin. "
            "To let every program on this machine do everything without a token: tasklib server --no-auth"
        )
