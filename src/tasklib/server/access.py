"""What routes depend on: principals and their roles, and the services. Every route declares which roles may use it:
`Depends(allow(Role.VIEWER))`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from tasklib.client.async_clients import AsyncClient
from tasklib.server.problems import Problem
from tasklib.server.services import Services
from tasklib.store.tokens import Role, StoredToken

__all__ = [
    "ANONYMOUS",
    "SCRAPER",
    "UNAUTHENTICATED",
    "Principal",
    "Role",
    "allow",
    "anybody",
    "client_of",
    "roles_of",
    "services",
]

PRINCIPAL = "tasklib.principal"
"""Where the scope of a request has its Principal."""

_INCLUDED = {
    Role.APPROVER: {Role.VIEWER},
    Role.OPERATOR: {Role.APPROVER, Role.VIEWER, Role.SUBMITTER},
    Role.ADMIN: {Role.OPERATOR, Role.APPROVER, Role.VIEWER, Role.SUBMITTER},
}


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request."""

    actor: str
    """The name in the audit."""
    roles: frozenset[Role]
    """Its roles, with those that they include."""
    token_id: UUID | None = None
    queues: tuple[str, ...] | None = None
    """As a worker, the queues it may take from; None means all."""
    is_anonymous: bool = False
    """There are no tokens, and the request comes from this machine."""
    prefix: str | None = None
    """The part of its token that is no secret."""

    def may(self, *roles: Role) -> bool:
        """True if it has one of these roles, or one that includes it."""
        return not self.roles.isdisjoint(roles)

    @property
    def only_own(self) -> bool:
        """True if the tasks of others are unknown to it."""
        return not self.may(Role.VIEWER)

    @property
    def submitted_by(self) -> str | None:
        """What the tasks it submits have in their column of this name."""
        return str(self.token_id) if self.token_id else None


HostLogin: TypeAlias = Callable[[HTTPConnection], Awaitable[Principal | None]]
"""The user of the program that the server is mounted in; None if not logged in."""

UNAUTHENTICATED = Principal("unauthenticated", frozenset())
ANONYMOUS = Principal("anonymous", frozenset(Role), is_anonymous=True)
SCRAPER = Principal("scraper", frozenset({Role.VIEWER}), is_anonymous=True)
"""The reader of /metrics where that needs no token."""


def allowed_queues(principal: Principal, asked: list[str] | None) -> tuple[str, ...] | None:
    """The queues that a worker gets tasks from if it asks for these (None: all); 403 if it may not."""
    allowed = principal.queues
    if allowed is None:
        return tuple(asked) if asked is not None else None
    if others := [queue for queue in asked or () if queue not in allowed]:
        raise Problem(
            403,
            "queue_not_allowed",
            "The token doesn't open these queues",
            f"This token is for workers of {', '.join(allowed)} only, not of {', '.join(others)[:500]}.",
            queues=list(allowed),
        )
    return tuple(asked) if asked is not None else allowed


def with_included(roles: Iterable[str]) -> frozenset[Role]:
    """These roles and all that they include. Roles that a newer version gave out mean nothing here."""
    known = {Role(role) for role in roles if role in set(Role)}
    return frozenset(known.union(*(_INCLUDED.get(role, set()) for role in known)))


def principal_of(token: StoredToken) -> Principal:
    """The principal of this token."""
    actor = f"token:{token.name} ({token.prefix})"
    return Principal(actor, with_included(token.roles), token.id, token.queues, prefix=token.prefix)


class allow:
    """A dependency that gives the Principal if it has one of these roles, and refuses it otherwise."""

    def __init__(self, *roles: Role) -> None:
        if not roles:
            raise ValueError("allow() needs a role; a public route uses anybody.")
        self.roles: frozenset[Role] = frozenset(roles)

    def __call__(self, request: HTTPConnection) -> Principal:
        return checked(request.scope.get(PRINCIPAL, UNAUTHENTICATED), self.roles)


class _Anybody:
    """A dependency for routes without a lock, such as whether the server lives."""

    roles: frozenset[Role] = frozenset()

    def __call__(self, request: HTTPConnection) -> Principal:
        principal: Principal = request.scope.get(PRINCIPAL, UNAUTHENTICATED)
        return principal


anybody = _Anybody()


def checked(principal: Principal, roles: frozenset[Role]) -> Principal:
    """The principal, if it has one of these roles; else 401 or 403."""
    if principal.may(*roles):
        return principal
    names = [role.value for role in Role if role in roles]
    if principal is UNAUTHENTICATED:
        raise Problem(
            401,
            "token_missing",
            "A token is needed",
            f"Send a token with the role {' or '.join(names)}: Authorization: Bearer tasklib_...",
            roles=names,
        )
    raise Problem(
        403,
        "role_missing",
        "The token's roles don't allow this",
        f"This needs a token with the role {' or '.join(names)}; "
        f"{principal.prefix} is {' and '.join(sorted(principal.roles)) or 'nothing'}.",
        roles=names,
    )


def roles_of(route: BaseRoute) -> frozenset[Role] | None:
    """The roles that a route declares: an empty set means public. None: it declares nothing, and is refused."""
    dependant = getattr(route, "dependant", None)
    return _declared(dependant) if dependant is not None else None


def _declared(dependant: Any) -> frozenset[Role] | None:
    for dependency in dependant.dependencies:
        if isinstance(dependency.call, allow | _Anybody):
            return dependency.call.roles
        if (below := _declared(dependency)) is not None:
            return below
    return None


def services(request: HTTPConnection) -> Services:
    """A dependency that gives the server's services: `Depends(services)`."""
    found: Services = request.app.state.services
    return found


def client_of(principal: Principal, services: Services, *, to_change: bool = False) -> AsyncClient:
    """The client as this principal uses it. `to_change`: to submit, or to change a task that is there.

    A viewer sees all tasks; only an operator changes them, and shares idempotency keys with all programs.
    """
    only_own = principal.submitted_by is not None and (
        principal.only_own or (to_change and not principal.may(Role.OPERATOR))
    )
    client = services.client.on_behalf_of(principal.actor, submitted_by=principal.submitted_by, only_own=only_own)
    if not principal.may(Role.OPERATOR):
        client.calls = client.calls.on_behalf_of(replace(client.calls.identity, secrets=services.redaction.pattern))
    return client
