"""Configuration: a frozen dataclass, a sentence under each field, checked when it is made.

Config("postgresql://app@db/app", schema="jobs", max_retries=5)
Config.from_env()        # TASKLIB_DATABASE_URL, TASKLIB_SCHEMA, TASKLIB_MAX_RETRIES, ...
"""

from __future__ import annotations

import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tasklib import environment
from tasklib.addresses import check_schema, checked_url, url_in_file
from tasklib.errors import ConfigError
from tasklib.shards import MOST_SHARD, Shard, checked_shards, read_shards
from tasklib.states import TERMINAL

ENV_PREFIX = "TASKLIB_"
_COMMON_URL = "DATABASE_URL"
PRIORITY_MIN, PRIORITY_MAX = -10, 100
PROCESS_STARTS = ("template", "spawn")


@dataclass(frozen=True, slots=True)
class Level:
    """What naming a priority level ("high") brings along; a bare integer brings nothing."""

    priority: int
    max_retries: int
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished tasks of one state, and perhaps one name, are kept.

    Retention("completed", days=30)
    Retention("completed", days=1, name="ping")      # goes before the rule without a name
    """

    state: str
    days: float
    name: str | None = None

    def __post_init__(self) -> None:
        if self.state not in TERMINAL:
            raise ConfigError(f"retention is for finished tasks ({', '.join(sorted(TERMINAL))}), not {self.state!r}.")
        if not self.days >= 0:
            raise ConfigError(f"retention days must be 0 or more, not {self.days!r}.")

    @property
    def seconds(self) -> float:
        return self.days * 86400.0


Keys: TypeAlias = str | Sequence[tuple[str, bytes]] | Callable[[], "str | Sequence[tuple[str, bytes]]"]
"""`id:base64,...`, pairs of an id and 32 bytes, or a function that returns either."""


class PayloadStore(Protocol):
    """Where long payloads are kept outside of the table. Its methods may be called from any thread.

    Any error they raise counts as a failure of the store, which is tried again; KeyError of `get` says that the store
    has no such payload. `keys` returns at most `limit` keys behind this one, in their order: by it the leader finds
    payloads whose tasks were deleted.
    """

    def put(self, key: str, data: bytes) -> None: ...
    def get(self, key: str) -> bytes: ...
    def delete(self, key: str) -> None: ...
    def keys(self, after: str, limit: int) -> Sequence[str]: ...


def _default_levels() -> Mapping[str, Level]:
    return types.MappingProxyType({"high": Level(100, 5, 300), "medium": Level(0, 3, 600), "low": Level(-10, 2, 900)})


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a TaskLib program."""

    database_url: str = field(default="", repr=False)
    """Where PostgreSQL is: a libpq URL or keyword string. SQLAlchemy's `postgresql+driver://` is understood. With
    shards it is that of the one with the lowest number, and can be left out."""

    schema: str | None = None
    """The schema that holds TaskLib's tables; None means the connection's search_path."""

    max_retries: int = 3
    """How often a failed task is tried again, unless the call, the task function or the level says otherwise."""

    base_retry_delay_seconds: float = 5.0
    """The wait before the first retry."""

    retry_backoff_multiplier: float = 2.0
    """Each further wait is this many times the one before."""

    max_retry_delay_seconds: float = 3600.0
    """No wait is longer than this."""

    retry_jitter: float = 0.1
    """Waits are spread by up to this fraction either way, so that retries don't arrive together."""

    default_task_timeout_seconds: int | None = None
    """The timeout of tasks that name none; None means no timeout."""

    transactional: bool = False
    """True: functions that take a psycopg connection as `connection` are transactional, unless they say otherwise."""

    lock_timeout_seconds: float = 600.0
    """How long a lease lasts without being extended."""

    heartbeat_interval_seconds: float = 30.0
    """How often a worker sends a heartbeat."""

    heartbeat_timeout_seconds: float = 90.0
    """A worker without a heartbeat for this long is dead, and its tasks run elsewhere. At least three intervals."""

    leader_lease_seconds: float = 30.0
    """How long the leader leads without renewing: the longest time without a leader after it dies."""

    crash_limit: int = 3
    """A task that has taken its worker or child process down this often becomes a dead letter."""

    sweep_interval_seconds: float = 30.0
    """How often the leader checks for dead workers, lost attempts and attempts past their timeout."""

    upkeep_interval_seconds: float = 60.0
    """How often the leader deletes expired idempotency keys, dead letters and tasks past their retention."""

    overdue_grace_seconds: float = 30.0
    """An attempt this far past its timeout, whose worker didn't end it, is failed by the leader."""

    dead_letter_days: float | None = 30.0
    """Dead letters are deleted after this many days; None keeps them."""

    retention: tuple[Retention, ...] = ()
    """Rules for deleting finished tasks, e.g. Retention("completed", days=7); none: they stay."""

    worker_id: str | None = None
    """The readable part of a worker's id; each start adds a fresh suffix. None means host and process id."""

    max_prefetch: int = 1500
    """How many tasks a worker may hold beyond its slots while tasks take only milliseconds; 0: none."""

    poll_interval_seconds: float = 1.0
    """The longest interval at which an idle worker polls; four times this while notifications arrive and wake it."""

    listen: bool = True
    """Wake on NOTIFY. False means polling only, for poolers and databases without LISTEN."""

    listen_database_url: str | None = field(default=None, repr=False)
    """A direct connection for LISTEN, where database_url goes through a transaction pooler."""

    prepared_statements: bool = True
    """False behind a pooler in transaction mode (PgBouncer): no prepared statements, and no session settings either."""

    statement_timeout_seconds: float = 30.0
    """A statement unanswered for this long counts as a lost connection."""

    connect_timeout_seconds: float = 10.0
    """How long one attempt to connect may take."""

    startup_timeout_seconds: float = 60.0
    """How long a worker or server that starts waits for a database it can't reach; 0: not at all."""

    max_connections: int = 10
    """The most connections a client keeps open at a time."""

    shutdown_grace_seconds: float = 30.0
    """How long running tasks may go on after the first SIGTERM or Ctrl-C."""

    max_payload_bytes: int = 1024 * 1024
    """The largest arguments, result or tags of one task, as JSON."""

    max_error_bytes: int = 64 * 1024
    """Longer tracebacks are cut in the middle."""

    process_start: str = "template"
    """How child processes start: "template" forks a process that has imported the modules, "spawn" imports anew."""

    process_start_timeout_seconds: float = 60.0
    """How long a child process may take to start, imports included. A task that waits for it uses no retry."""

    process_max_tasks: int = 100
    """A child process is replaced after this many tasks."""

    process_kill_grace_seconds: float = 2.0
    """A child asked to stop is killed after this long."""

    backpressure: bool = False
    """Refuse submissions to a queue that is over its bounds: one more statement for each. A server always does."""

    idempotency_window_seconds: float = 86400.0
    """For how long an idempotency key returns the first task."""

    promote_to_medium_after_seconds: float = 600.0
    """A task below medium counts as medium after waiting this long."""

    promote_to_high_after_seconds: float = 1200.0
    """Any task counts as high after waiting this much longer."""

    actor: str | None = None
    """Who the audit says made a change through this program; None means the system's user and machine: `ann@web1`."""

    deployed_at: str | None = None
    """When this program was deployed, such as 2026-11-16T12:00:00Z: an older deploy never changes the schedules of a
    newer one, and failures first seen after a deploy are new. None means the time at which the files of its task
    functions were last changed."""

    keys: Keys | None = field(default=None, repr=False)
    """The keys of sealed tasks, as id:base64 separated by commas, as pairs, or a function that returns them. The first
    one seals, all of them open. Read once."""

    keys_file: str | None = None
    """A file with the keys, in place of `keys`: id:base64, one in a line."""

    key_for: Callable[[str, Mapping[str, Any]], str] | None = field(default=None, repr=False)
    """Which key seals a task, by its name and arguments; None: the first one. It returns an id of the keyring."""

    payload_store: str | PayloadStore | None = field(default=None, repr=False)
    """Where long arguments and results are kept outside of the table: a directory, s3://bucket/prefix, or an object
    with the methods of `PayloadStore`. All programs need the same. None: all are in the table."""

    payload_store_from_bytes: int = 256 * 1024
    """Arguments and results from this size on go to the payload store."""

    levels: Mapping[str, Level] = field(default_factory=_default_levels)
    """The named priority levels."""

    shards: tuple[Shard, ...] = ()
    """The schemas over which tasks are spread. None: there is one, at `database_url`."""

    shards_file: str | None = None
    """A TOML file with the shards, instead of `shards`."""

    shard: int = 0
    """The number of the shard at `database_url`, which new ids have in them. Set where one shard is used alone."""

    def __post_init__(self) -> None:
        self._take_shards()
        object.__setattr__(self, "database_url", checked_url("database_url", self.database_url))
        if self.listen_database_url is not None:
            direct = checked_url("listen_database_url", self.listen_database_url)
            object.__setattr__(self, "listen_database_url", direct)
        _check_types(self)
        _check_ranges(self)
        check_schema(self.schema)
        if self.shard > MOST_SHARD:
            raise ConfigError(f"shard must be at most {MOST_SHARD}, not {self.shard}.")
        if self.actor is not None and not is_actor(self.actor):
            raise ConfigError(f"actor must be a name of 1 to 200 printable characters, not {self.actor!r}.")
        _check_levels(self.levels)
        _check_deployed_at(self.deployed_at)
        _check_payload_store(self.payload_store)
        if self.process_start not in PROCESS_STARTS:
            raise ConfigError(f"process_start must be one of {', '.join(PROCESS_STARTS)}, not {self.process_start!r}.")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """Read TASKLIB_<FIELD> variables; keyword arguments win over them.

        TASKLIB_DATABASE_URL_FILE names a file with the URL. Without both, DATABASE_URL counts if it is PostgreSQL's.
        """
        environ = os.environ if environ is None else environ
        values = environment.read(cls, ENV_PREFIX, environ)
        if rules := environ.get(f"{ENV_PREFIX}RETENTION"):
            values["retention"] = tuple(_parse_retention(rule.strip()) for rule in rules.split(","))
        values.update({name: value for name, value in overrides.items() if value is not None})
        has_shards = bool(values.get("shards") or values.get("shards_file"))
        # Beside shards, DATABASE_URL is the program's own.
        url = url_in({**environ, _COMMON_URL: ""} if has_shards else environ)
        if url and overrides.get("database_url") is None:
            values["database_url"] = url
        if "database_url" not in values and not has_shards:
            other = " DATABASE_URL is not a PostgreSQL URL." if environ.get(_COMMON_URL) else ""
            raise ConfigError(
                "no database is configured. Set TASKLIB_DATABASE_URL=postgresql://user@host/db, "
                f"or pass the URL (tasklib.init(url), --database-url).{other}"
            )
        return cls(**values)

    def with_changes(self, **changes: Any) -> Config:
        """A copy with some fields changed, checked again."""
        return replace(self, **changes)

    @property
    def home(self) -> Shard:
        """Where that is which exists once, such as schedules: the shard with the lowest number."""
        if self.shards:
            return self.shards[0]
        return Shard(self.shard, self.database_url, self.schema, listen_database_url=self.listen_database_url)

    def with_shards(self, shards: Sequence[Shard]) -> Config:
        """The same with these shards, such as those that `shards_file` names by now."""
        return replace(self, shards=tuple(shards), database_url="", schema=None, listen_database_url=None)

    def for_shard(self, number: int) -> Config:
        """The configuration of one shard alone: new ids name it."""
        found = next((shard for shard in self.shards or (self.home,) if shard.number == number), None)
        if found is None:
            known = ", ".join(str(shard.number) for shard in self.shards or (self.home,))
            raise ConfigError(f"there is no shard {number} among the configured ones ({known}).")
        return replace(
            self,
            database_url=found.database_url,
            schema=found.schema,
            listen_database_url=found.listen_database_url,
            shards=(),
            shards_file=None,
            shard=number,
        )

    def _take_shards(self) -> None:
        """Read the shards, and let the fields for one database be those of the home shard."""
        shards = self.shards
        if isinstance(self.shards_file, str) and not shards:
            shards = read_shards(Path(self.shards_file))
        object.__setattr__(self, "shards", shards := checked_shards(shards))
        if not shards:
            return
        if self.shard:
            raise ConfigError("shard is the number of one shard that is used alone: leave it out beside shards.")
        for name in ("database_url", "schema", "listen_database_url"):
            given, home = getattr(self, name), getattr(shards[0], name)
            if given and given != home:
                raise ConfigError(f"{name} is given, and so are shards, which have their own. Leave it out.")
            object.__setattr__(self, name, home)

    @property
    def channel(self) -> str | None:
        """The NOTIFY channel, or None while the schema is left to the search_path."""
        return channel_of(self.schema) if self.schema else None


def url_in(environ: Mapping[str, str]) -> str | None:
    """The database that the environment names: TASKLIB_DATABASE_URL, a file with it, or DATABASE_URL if PostgreSQL's.

    DATABASE_URL belongs to the whole program, whose own database may be another one.
    """
    common = environ.get(_COMMON_URL, "")
    is_postgresql = re.match(r"postgres(ql)?(\+\w+)?://", common.strip()) is not None
    if url := environ.get(f"{ENV_PREFIX}DATABASE_URL"):
        return url
    if file := environ.get(f"{ENV_PREFIX}DATABASE_URL_FILE"):
        return url_in_file(Path(file))
    return common if is_postgresql else None


def _check_payload_store(store: object) -> None:
    methods = ("put", "get", "delete", "keys")
    if store is None or isinstance(store, str) or all(callable(getattr(store, name, None)) for name in methods):
        return
    raise ConfigError(
        "payload_store must be a directory, s3://bucket/prefix or an object with the methods "
        f"{', '.join(methods)}, not {store!r}."
    )


def channel_of(schema: str) -> str:
    """The channel that the tables in this schema notify."""
    return f"tasklib_{schema}"


def _parse_retention(rule: str) -> Retention:
    subject, _, days = rule.rpartition("=")
    state, _, name = subject.partition(":")
    try:
        return Retention(state, float(days), name or None)
    except ValueError as e:
        reason = f" {e}" if isinstance(e, ConfigError) else ""
        raise ConfigError(
            f"{ENV_PREFIX}RETENTION must be rules like completed=30 or completed:ping=0.5 (days), not {rule!r}.{reason}"
        ) from None


def _check_types(config: Config) -> None:
    for f in fields(config):
        value = getattr(config, f.name)
        wanted = str(f.type)
        optional = wanted.endswith("| None")
        base = wanted.removesuffix("| None").strip()
        if value is None and optional:
            continue
        ok = {
            "int": isinstance(value, int) and not isinstance(value, bool),
            "float": isinstance(value, int | float) and not isinstance(value, bool),
            "bool": isinstance(value, bool),
            "str": isinstance(value, str),
        }.get(base, True)
        if not ok:
            kind = {"int": "a whole number", "float": "a number", "bool": "True or False", "str": "a string"}[base]
            raise ConfigError(f"{f.name} must be {kind}{' or None' if optional else ''}, not {value!r}.")


# (field, smallest allowed, whether the smallest itself is allowed)
_RANGES: tuple[tuple[str, float, bool], ...] = (
    ("max_retries", 0, True),
    ("base_retry_delay_seconds", 0, True),
    ("retry_backoff_multiplier", 1, True),
    ("max_retry_delay_seconds", 0, True),
    ("retry_jitter", 0, True),
    ("default_task_timeout_seconds", 0, False),
    ("lock_timeout_seconds", 1, True),
    ("crash_limit", 1, True),
    ("shard", 0, True),
    ("heartbeat_interval_seconds", 0, False),
    ("heartbeat_timeout_seconds", 0, False),
    ("leader_lease_seconds", 1, True),
    ("upkeep_interval_seconds", 0, False),
    ("overdue_grace_seconds", 0, True),
    ("dead_letter_days", 0, True),
    ("sweep_interval_seconds", 0, False),
    ("max_prefetch", 0, True),
    ("poll_interval_seconds", 0, False),
    ("statement_timeout_seconds", 0, False),
    ("connect_timeout_seconds", 0, False),
    ("startup_timeout_seconds", 0, True),
    ("max_connections", 1, True),
    ("shutdown_grace_seconds", 0, True),
    ("max_payload_bytes", 1, True),
    ("payload_store_from_bytes", 1024, True),
    ("max_error_bytes", 1024, True),
    ("process_start_timeout_seconds", 0, False),
    ("process_max_tasks", 1, True),
    ("process_kill_grace_seconds", 0, True),
    ("idempotency_window_seconds", 0, False),
    ("promote_to_medium_after_seconds", 0, False),
    ("promote_to_high_after_seconds", 0, False),
)


def _check_ranges(config: Config) -> None:
    for name, least, allowed in _RANGES:
        value = getattr(config, name)
        if value is None:
            continue
        if value != value or value < least or (value == least and not allowed):
            bound = f"at least {least}" if allowed else f"more than {least}"
            raise ConfigError(f"{name} must be {bound}, not {value!r}.")
        if value > 2**31 - 1:
            raise ConfigError(f"{name} must be below 2,147,483,648, not {value!r}.")
    if config.heartbeat_interval_seconds > config.heartbeat_timeout_seconds / 3:
        raise ConfigError(
            f"heartbeat_interval_seconds ({config.heartbeat_interval_seconds:g}) must be at most a third of "
            f"heartbeat_timeout_seconds ({config.heartbeat_timeout_seconds:g}), so that one late "
            "heartbeat doesn't make a worker count as dead."
        )
    if config.retry_jitter > 1:
        raise ConfigError(f"retry_jitter is a fraction and must be at most 1, not {config.retry_jitter!r}.")


def is_actor(name: object) -> bool:
    """True for a name that the audit can hold and a terminal can show."""
    return isinstance(name, str) and bool(name.strip()) and name.isprintable() and len(name) <= 200


def _check_deployed_at(stamp: str | None) -> None:
    try:
        is_time = stamp is None or datetime.fromisoformat(stamp).tzinfo is not None
    except ValueError:
        is_time = False
    if not is_time:
        raise ConfigError(f"deployed_at must be a time with a zone, such as '2026-11-16T12:00:00Z', not {stamp!r}.")


def _check_levels(levels: Mapping[str, Level]) -> None:
    if not isinstance(levels, Mapping) or not all(isinstance(level, Level) for level in levels.values()):
        raise ConfigError(f"levels must map names to Level(priority, max_retries, timeout_seconds), not {levels!r}.")
    for name, level in levels.items():
        if not PRIORITY_MIN <= level.priority <= PRIORITY_MAX:
            raise ConfigError(f"level {name!r} has priority {level.priority}; it must be from -10 to 100.")
        if level.max_retries < 0 or level.timeout_seconds <= 0:
            raise ConfigError(f"level {name!r} needs max_retries of at least 0 and a timeout above 0 seconds.")
