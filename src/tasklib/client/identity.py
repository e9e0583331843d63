"""On whose behalf a call is made: who is recorded as having done it, and whose tasks it is about."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass, field
from functools import cache

from tasklib.config import Config, is_actor
from tasklib.errors import InvalidOption
from tasklib.tasks.options import MAX_NAME_BYTES, is_name


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller."""

    actor: str
    """The name in the audit."""
    submitted_by: str | None = None
    """What the tasks it submits have in their column of this name."""
    only_own: bool = False
    """True: the tasks of others are to it as if they didn't exist."""
    secrets: str | None = None
    """A regular expression of PostgreSQL: what it finds in an error is masked for this caller, and not searched."""
    owner: str | None = field(init=False)
    """The owner whose tasks it is limited to; None: no limit."""

    def __post_init__(self) -> None:
        if not is_actor(self.actor):
            raise InvalidOption(f"an actor is a name of 1 to 200 printable characters, not {self.actor!r}.")
        if self.submitted_by is not None and not is_name(self.submitted_by):
            raise InvalidOption(f"submitted_by must be a string of 1 to {MAX_NAME_BYTES} bytes.")
        if self.only_own and self.submitted_by is None:
            raise InvalidOption("only_own=True needs submitted_by=, the owner of the tasks.")
        object.__setattr__(self, "owner", self.submitted_by if self.only_own else None)

    def key(self, idempotency_key: str) -> str:
        """The idempotency key as it is stored: a caller who knows only its own tasks has keys of its own.

        Otherwise it could find out which keys other owners use, and occupy them.
        """
        return f"{self.submitted_by}/{idempotency_key}" if self.only_own else idempotency_key


def said_key(stored: str | None, submitted_by: str | None) -> str | None:
    """The idempotency key as the submission said it."""
    return stored and stored.removeprefix(f"{submitted_by}/")


class OnBehalf:
    """Calls for one configuration, on behalf of one identity: by default the user who runs this program."""

    def __init__(self, config: Config, identity: Identity | None = None) -> None:
        self.config = config
        self.identity = identity or Identity(config.actor or this_user())


@cache
def this_user() -> str:
    """The user of the operating system that runs this program, and the machine's name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user without a name, as in many containers
        user = f"uid {os.getuid()}"
    name = f"{user}@{socket.gethostname()}"[:200]
    return "".join(c if c.isprintable() else "?" for c in name)
