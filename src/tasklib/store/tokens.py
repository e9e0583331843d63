"""Tokens: what opens the HTTP API. Their texts are made here and given away once; the table keeps a hash.

A token reads `tasklib_<prefix>_<secret>`. The prefix is no secret: it finds the row and names the token to people.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from tasklib.db.query import Query, Rows, nothing
from tasklib.store.audit import Action, audited

_TEXT = re.compile(r"tasklib_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_PREFIX = re.compile(r"[0-9a-f]{12}")
_PREFIX_BYTES, _SECRET_BYTES = 6, 32


class Role(StrEnum):
    """What a token is for; one token may have several. What each may do, the server says."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    WORKER = "worker"
    APPROVER = "approver"
    OPERATOR = "operator"
    ADMIN = "admin"


def new_text() -> str:
    """A token that can't be guessed: 256 random bits."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
    return f"tasklib_{secrets.token_hex(_PREFIX_BYTES)}_{secret}"


def prefix_of(text: str) -> str | None:
    """The prefix by which a token is found; None if this can't be a token."""
    match = _TEXT.fullmatch(text)
    return match[1] if match else None


def prefix_in(text: str) -> str | None:
    """The prefix that people name a token by: alone, or in a whole token that they found lying about."""
    return text if _PREFIX.fullmatch(text) else prefix_of(text)


def hash_of(text: str) -> bytes:
    """The stored hash of a token. A random secret of this length needs no slow hash."""
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A row of `api_tokens`, as needed to check a token."""

    id: UUID
    name: str
    prefix: str
    hash: bytes = field(repr=False)
    roles: tuple[str, ...]
    queues: tuple[str, ...] | None
    expires_at: datetime | None
    revoked_at: datetime | None
    is_usable: bool
    """Neither expired nor revoked, by the database's clock when it was read."""

    def opens_with(self, text: str) -> bool:
        """True if this is the token, and it may still be used."""
        return hmac.compare_digest(self.hash, hash_of(text)) and self.is_usable


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A row of `api_tokens` as people may see it: without the secret."""

    id: UUID
    name: str
    prefix: str
    roles: tuple[str, ...]
    queues: tuple[str, ...] | None
    """The queues a worker may take tasks from; None means all."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""
    is_usable: bool
    """Neither expired nor revoked, by the database's clock when it was read."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just created. Its text is nowhere else: not in the database, not in any list."""

    text: str = field(repr=False)
    info: TokenInfo


def find(prefix: str) -> Query[StoredToken | None]:
    """The token with this prefix, for comparing."""
    return Query("token_find", {"prefix": prefix}, _stored, repeatable=True, all_text=True)


def any_ever() -> Query[bool]:
    """Whether there has ever been a token: rows are never deleted."""
    return Query("token_any_ever", {}, lambda rows: bool(rows[0][0]), repeatable=True)


def usable(prefixes: Iterable[str]) -> Query[set[str]]:
    """Those of these prefixes whose tokens may be used."""
    return Query(
        "token_usable_of", {"prefixes": list(prefixes)}, lambda rows: {row[0] for row in rows}, repeatable=True
    )


def used(ids: Iterable[UUID]) -> Query[None]:
    """Note that these were used just now; more than once a minute isn't written down."""
    return Query("token_used", {"ids": [str(i) for i in ids]}, nothing, repeatable=True)


def create(
    id_: UUID,
    text: str,
    *,
    name: str,
    roles: Sequence[Role],
    queues: Sequence[str] | None,
    expires_in: float | None,
    by: str,
) -> Query[TokenInfo]:
    """Keep a new token, by its hash; it expires so many seconds from now."""
    granted = {
        "name": name,
        "prefix": prefix_of(text),
        "roles": [role.value for role in roles],
        "queues": list(queues) if queues is not None else None,
    }
    parameters = {**granted, "id": str(id_), "hash": hash_of(text), "expires_in": expires_in}
    return audited(
        "token_create",
        parameters,
        lambda rows: _infos(rows)[0],
        by=by,
        action=Action.CREATE_TOKEN,
        target=str(id_),
        details=granted,
    )


def tokens() -> Query[list[TokenInfo]]:
    """All of them, the oldest first: those that expired or were revoked too."""
    return Query("token_list", {}, _infos, repeatable=True)


def get(*, id_: UUID | None = None, prefix: str | None = None) -> Query[TokenInfo | None]:
    """One token by its id or its prefix."""
    parameters = {"id": str(id_) if id_ else None, "prefix": prefix}
    return Query("token_get", parameters, _first_info, repeatable=True)


def revoke(token: TokenInfo, *, by: str) -> Query[TokenInfo | None]:
    """End a token for good; reads None if it was revoked already."""
    return audited(
        "token_revoke",
        {"id": str(token.id)},
        _first_info,
        by=by,
        action=Action.REVOKE_TOKEN,
        target=str(token.id),
        details={"name": token.name, "prefix": token.prefix},
        repeatable=True,
    )


def _stored(rows: Rows) -> StoredToken | None:
    if not rows:
        return None
    id_, name, prefix, hash_, roles, queues, *rest = rows[0]
    return StoredToken(id_, name, prefix, bytes(hash_), tuple(roles), _tuple(queues), *rest)


def _infos(rows: Rows) -> list[TokenInfo]:
    return [
        TokenInfo(id_, name, prefix, tuple(roles), _tuple(queues), *rest)
        for id_, name, prefix, roles, queues, *rest in rows
    ]


def _first_info(rows: Rows) -> TokenInfo | None:
    return _infos(rows)[0] if rows else None


def _tuple(values: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
