"""Tokens for the HTTP API, and the audit: calls for sync and async callers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from tasklib.client import validation
from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.db.query import Query
from tasklib.errors import InvalidOption, TokenNotFound
from tasklib.store import audit, tokens
from tasklib.store.audit import Action, AuditRecord
from tasklib.store.tokens import NewToken, Role, TokenInfo
from tasklib.tasks.ids import new_id
from tasklib.tasks.options import MAX_NAME_BYTES, is_name, is_storable

MAX_TOKEN_NAME = 100
_MOST_SECONDS = 100 * 365 * 86400


class TokenCalls(OnBehalf):
    """API tokens, and the audit of changes."""

    def create_token(
        self,
        name: str,
        *,
        roles: str | Iterable[str],
        queues: str | Iterable[str] | None = None,
        expires_in: timedelta | float | None = None,
    ) -> Call[NewToken]:
        """Make a token for the HTTP API. Its `text` is shown here and never again; the database keeps only a hash.

        `roles` are some of viewer, submitter, worker, approver, operator and admin. `queues` limits a worker to these.
        `expires_in` is a timedelta or seconds; without it, it can be used until it is revoked.
        """
        wanted = _roles(roles)
        limits = _queues(queues, wanted)
        text = tokens.new_text()
        info: TokenInfo = yield tokens.create(
            new_id(),
            text,
            name=_token_name(name),
            roles=wanted,
            queues=limits,
            expires_in=_seconds(expires_in),
            by=self.identity.actor,
        )
        return NewToken(text, info)

    def tokens(self) -> Call[list[TokenInfo]]:
        """All tokens, the oldest first: those that have expired or were revoked too, and none with its secret."""
        found: list[TokenInfo] = yield tokens.tokens()
        return found

    def revoke_token(self, id_or_prefix: UUID | str) -> Call[TokenInfo]:
        """End a token for good, and return it. Revoking it again changes nothing."""
        token: TokenInfo | None = yield _one(id_or_prefix)
        if token is None:
            raise TokenNotFound(id_or_prefix)
        revoked: TokenInfo | None = yield tokens.revoke(token, by=self.identity.actor)
        return revoked or (yield tokens.get(id_=token.id))

    def audit(
        self,
        *,
        action: str | None = None,
        actor: str | None = None,
        target: str | None = None,
        before: int | AuditRecord | None = None,
        limit: int = 100,
    ) -> Call[list[AuditRecord]]:
        """Who cancelled, replayed, purged, paused, drained, changed a setting or a token: one page, the latest first.

        For the next page pass the last record as `before`. `target` is an id, or `queue:mail`, `name:send_email`.
        """
        validation.check_limit(limit, validation.MAX_PAGE)
        chosen = {"action": _action(action), "actor": _text("actor", actor), "target": _text("target", target)}
        return (yield from self._audit(chosen, _place(before), limit))

    def _audit(self, chosen: Mapping[str, str | None], before: int | None, limit: int) -> Call[list[AuditRecord]]:
        page: list[AuditRecord] = yield audit.page(limit=limit, before=before, before_at=None, **chosen)
        return page


def _token_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > MAX_TOKEN_NAME:
        raise InvalidOption(f"a token's name is 1 to {MAX_TOKEN_NAME} printable characters, not {name!r}.")
    return name.strip()


def _roles(roles: str | Iterable[str]) -> list[Role]:
    given = _listed("roles", roles)
    try:
        wanted = {Role(role) for role in given}
    except ValueError as e:
        raise InvalidOption(f"{e}: the roles are {', '.join(Role)}.") from None
    if not wanted:
        raise InvalidOption(f"a token needs a role, one or more of {', '.join(Role)}.")
    return [role for role in Role if role in wanted]


def _queues(queues: str | Iterable[str] | None, roles: list[Role]) -> list[str] | None:
    if queues is None:
        return None
    if Role.WORKER not in roles:
        raise InvalidOption("queues= limits what a worker takes; this token doesn't have the role worker.")
    given = _listed("queues", queues)
    for queue in given:
        if not is_name(queue):
            raise InvalidOption(f"a queue is a string of 1 to {MAX_NAME_BYTES} bytes, not {queue!r}.")
    if not given:
        raise InvalidOption("queues=[] would let a worker take nothing; leave it out for all queues.")
    return sorted(set(given))


def _listed(option: str, values: str | Iterable[str]) -> list[str]:
    if isinstance(values, str):
        return [values]
    if not isinstance(values, Iterable):
        raise InvalidOption(f"{option} must be a list of strings, not {values!r}.")
    return list(values)


def _seconds(expires_in: timedelta | float | None) -> float | None:
    if expires_in is None:
        return None
    seconds = expires_in.total_seconds() if isinstance(expires_in, timedelta) else expires_in
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _MOST_SECONDS:
        raise InvalidOption(
            f"expires_in must be a timedelta or seconds, more than 0 and at most 100 years, not {expires_in!r}."
        )
    return float(seconds)


def _one(id_or_prefix: object) -> Query[TokenInfo | None]:
    if isinstance(id_or_prefix, UUID):
        return tokens.get(id_=id_or_prefix)
    if isinstance(id_or_prefix, str):
        if prefix := tokens.prefix_in(id_or_prefix.strip()):
            return tokens.get(prefix=prefix)
        with suppress(ValueError):
            return tokens.get(id_=UUID(id_or_prefix.strip()))
    # Not repeated: it may be a secret.
    raise InvalidOption("a token is named by its id, a UUID, or its prefix, the 12 characters 0-9 and a-f in its text.")


def _action(action: str | None) -> str | None:
    try:
        return None if action is None else Action(action).value
    except ValueError as e:
        raise InvalidOption(f"{e}: an action is one of {', '.join(Action)}.") from None


def _text(option: str, value: str | None) -> str | None:
    if value is not None and (not isinstance(value, str) or not is_storable(value)):
        raise InvalidOption(f"{option} must be text that PostgreSQL can hold, not {value!r}.")
    return value


def _place(before: int | AuditRecord | None) -> int | None:
    place = before.id if isinstance(before, AuditRecord) else before
    if place is not None and (isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < 2**63):
        raise InvalidOption(f"before= is a record of the page before, or its id, not {before!r}.")
    return place
