"""The account that runs the server, and what it can reach."""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklib.embedded.errors import EmbeddedPostgresError

SERVER_ACCOUNTS = ("postgres", "nobody")
PUBLIC_DIR = Path("/var/lib/tasklib")


@dataclass(frozen=True)
class Account:
    """The user that runs the server: the current one, or for root another one."""

    uid: int
    gid: int

    @classmethod
    def choose(cls, pgdata: Path | None = None) -> Account:
        """For root, the owner of an existing cluster, else the first server account there is."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        if pgdata is not None and pgdata.exists():
            return cls(pgdata.stat().st_uid, pgdata.stat().st_gid)
        for name in SERVER_ACCOUNTS:
            with suppress(KeyError):
                return cls(pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
        raise EmbeddedPostgresError(
            "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to run it. "
            "Create one, start as an ordinary user, or give a --database-url."
        )

    @property
    def is_other(self) -> bool:
        return self.uid != os.geteuid()

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        # PG* variables would redirect the tools; TZ spares initdb a search through all time zones.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        env |= {"LC_ALL": "C", "TZ": "UTC"}
        # The current directory may be one that the account cannot enter.
        options: dict[str, Any] = {"cwd": "/", "env": env, "stdin": subprocess.DEVNULL}
        if self.is_other:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return subprocess.run(command, capture_output=True, text=True, **options)

    def reaches(self, directory: Path) -> bool:
        return not self.is_other or self.run("test", "-x", directory).returncode == 0

    def executes(self, program: Path) -> bool:
        with suppress(PermissionError):
            return self.run(program, "--version").returncode == 0
        return False

    def own(self, path: Path) -> Path:
        if self.is_other:
            os.chown(path, self.uid, self.gid)
        return path

    def scratch_dir(self) -> Path:
        """A temporary directory within the account's reach, and short enough for a socket below it."""
        for candidate in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
            if len(candidate) < 60 and self.reaches(Path(candidate)):
                return Path(candidate).resolve()
        raise EmbeddedPostgresError(f"No temporary directory is open to uid {self.uid}: make /tmp mode 1777.")

    def public_path(self, kind: str, original: Path, *version: int) -> Path:
        """Where root puts what the account cannot reach in its original place; one path per original and version."""
        digest = hashlib.sha256(repr((original, *version)).encode()).hexdigest()[:12]
        return self._public_place(original) / f"tasklib-{kind}-{digest}"

    def _public_place(self, original: Path) -> Path:
        if original.resolve().is_relative_to(Path(tempfile.gettempdir()).resolve()):
            return self.scratch_dir()
        with suppress(FileExistsError):
            PUBLIC_DIR.mkdir(parents=True)
            PUBLIC_DIR.chmod(0o755)  # whatever the umask
        return PUBLIC_DIR
