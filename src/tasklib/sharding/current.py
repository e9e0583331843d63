"""The shards as they are now: those of the configuration, or of its file, which is read anew when it changes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from tasklib.config import Config
from tasklib.errors import ConfigError
from tasklib.shards import Shard, read_shards

LOOK_SECONDS = 1.0
"""How often the file is looked at, at most."""


class CurrentShards:
    """The shards of a program. Safe between threads."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._file = None if config.shards_file is None else Path(config.shards_file)
        self._lock = threading.RLock()
        self._shards = config.shards
        self._configs: dict[int, tuple[Shard, Config]] = {}
        self._seen = self._stamp()
        self._looked = time.monotonic()
        self.trouble: str | None = None
        """Why the file could not be read when it was last looked at; the shards are those of before then."""

    def all(self) -> tuple[Shard, ...]:
        """Every shard, by number."""
        if self._file is not None and time.monotonic() - self._looked >= LOOK_SECONDS:
            self.look()
        return self._shards

    def look(self) -> None:
        """Read the file if it has changed."""
        with self._lock:
            self._looked = time.monotonic()
            stamp = self._stamp()
            if self._file is None or stamp == self._seen:
                return
            try:
                self._shards = read_shards(self._file)
                self.trouble = None
            except ConfigError as e:  # half written, or gone: go on with those that are known
                self.trouble = str(e)
                return
            self._seen = stamp

    def has(self, number: int) -> bool:
        """Whether there is a shard of this number."""
        return any(shard.number == number for shard in self.all())

    @property
    def home(self) -> int:
        """The number of the shard that has what exists once."""
        return self.all()[0].number

    def config_of(self, number: int) -> Config:
        """The configuration of one shard alone."""
        shard = next((shard for shard in self.all() if shard.number == number), None)
        if shard is None:
            known = ", ".join(str(each.number) for each in self.all())
            raise ConfigError(f"there is no shard {number} among the configured ones ({known}).")
        known_shard, config = self._configs.get(number, (None, None))
        if config is None or known_shard != shard:
            config = self._config.with_changes(
                database_url=shard.database_url,
                schema=shard.schema,
                listen_database_url=shard.listen_database_url,
                shards=(),
                shards_file=None,
                shard=number,
            )
            self._configs[number] = (shard, config)
        return config

    def _stamp(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
