"""What a figure depends on besides TaskLib: the machine, the versions, the settings of the server."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tasklib.bench.schema import BenchSchema
from tasklib.config import Config
from tasklib.db.connect import address

SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
)
_OURS = frozenset({"database_url", "listen_database_url", "schema", "retention"})


@dataclass(frozen=True)
class Facts:
    """The circumstances of a run."""

    tasklib: str
    commit: str | None
    """Of the checkout that TaskLib runs from; None if it was installed."""
    python: str
    psycopg: str
    uvloop: str | None
    system: str
    processor: str
    cores: int
    memory_gb: float
    postgres: str
    server: str
    """`embedded`, or its address."""
    filesystem: str | None
    """Of the data directory: on tmpfs a flush costs nothing. None if it can't be seen from here."""
    settings: dict[str, str]
    """Of the server."""
    configuration: dict[str, Any]
    """What TASKLIB_... variables have changed for this run."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """The same for a person."""
        commit = f" ({self.commit})" if self.commit else ""
        uvloop = f"uvloop {self.uvloop}" if self.uvloop else "no uvloop"
        disk = f", data on {self.filesystem}" if self.filesystem else ""
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        lines = [
            f"TaskLib {self.tasklib}{commit}, Python {self.python}, psycopg {self.psycopg}, {uvloop}",
            f"PostgreSQL {self.postgres}, {self.server}{disk}: {settings}",
            f"{self.system}, {self.processor}, {self.cores} cores, {self.memory_gb:.0f} GB",
        ]
        if self.configuration:
            lines.append("settings: " + ", ".join(f"{name}={value}" for name, value in self.configuration.items()))
        return lines


def facts_of(schema: BenchSchema, *, embedded: bool) -> Facts:
    """Look around."""
    from tasklib import __version__

    names = ", ".join(f"current_setting('{name}')" for name in SETTINGS)
    postgres, *values = schema.row(f"SELECT current_setting('server_version'), {names}")
    return Facts(
        tasklib=__version__,
        commit=_commit(),
        python=platform.python_version(),
        psycopg=version("psycopg"),
        uvloop=_version("uvloop"),
        **hardware(),
        postgres=postgres.partition(" ")[0],
        server="embedded" if embedded else address(schema.config.database_url),
        filesystem=_filesystem(schema),
        settings=dict(zip(SETTINGS, values, strict=True)),
        configuration=_changed(schema.config),
    )


def hardware() -> dict[str, Any]:
    """The machine, by the names that `Facts` has for it."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the checkout that this file belongs to, not of one that merely has it in a virtual environment."""
    here = Path(__file__)
    for question in (["ls-files", "--error-unmatch", here.name], ["describe", "--always", "--dirty", "--exclude=*"]):
        try:
            answer = subprocess.run(["git", *question], cwd=here.parent, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if answer.returncode != 0:
            return None
    return answer.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU unknown")


def _filesystem(schema: BenchSchema) -> str | None:
    """The type of the file system of a server on this machine, if we may know where its data is."""
    directory = schema.row("SELECT max(setting) FROM pg_settings WHERE name = 'data_directory'")[0]
    if schema.postmaster is None or not directory:
        return None
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    here = Path(directory).resolve()
    around = [(len(place), kind) for place, kind in mounts if here.is_relative_to(place)]
    return max(around)[1] if around else None


def _changed(config: Config) -> dict[str, Any]:
    default = Config(config.database_url)
    names = [field.name for field in fields(Config) if field.name not in _OURS]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(default, name)}
