"""`tasklib token`: tokens for the HTTP API."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasklib.cli.moments import relative, span
from tasklib.cli.options import ChosenDatabase, JsonLines, with_database
from tasklib.cli.tables import print_rows
from tasklib.store.tokens import Role

if TYPE_CHECKING:
    from tasklib.store.tokens import TokenInfo

TITLES = ("prefix", "name", "roles", "queues", "state", "created", "by", "expires", "last used", "id")
app = typer.Typer(no_args_is_help=True, help="Create, list and revoke tokens for the HTTP API.")


@app.command()
@with_database
def create(
    database: ChosenDatabase,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The person or program it is for.")],
    role: Annotated[
        list[Role], typer.Option(metavar="ROLE", show_default=False, help=f"{', '.join(Role)}; repeatable.")
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="QUEUE", show_default=False, help="Limit a worker to this queue; repeatable."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Validity, such as 12h or 90d. Default: until it is revoked.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The token and its details as JSON.")] = False,
) -> None:
    """Create a token and print it once; the database stores only a hash.

    Example: tasklib token create ci --role submitter --expires 90d
    """
    from tasklib.cli.report import note

    expires_in = span("--expires", expires)
    with database.connected() as client:
        new = client.create_token(name, roles=role, queues=queue or None, expires_in=expires_in)
    if json_:
        typer.echo(json.dumps({"token": new.text, **as_json(new.info)}))
        return
    typer.echo(new.text)
    note(f"{described(new.info)}. It is not shown again.")


@app.command("list")
@with_database
def list_(database: ChosenDatabase, json_: JsonLines = False) -> None:
    """List the tokens, without their secrets."""
    with database.connected() as client:
        found = client.tokens()
    if json_:
        for token in found:
            typer.echo(json.dumps(as_json(token)))
        return
    print_rows(TITLES, map(row, found), none="no tokens")


@app.command()
@with_database
def revoke(
    database: ChosenDatabase,
    token: Annotated[str, typer.Argument(metavar="PREFIX", show_default=False, help="The token's prefix, or its id.")],
) -> None:
    """Revoke a token permanently. Requests that use it are refused from now on."""
    from tasklib.cli.report import note

    with database.connected() as client:
        revoked = client.revoke_token(token)
    note(f"revoked {revoked.name} ({revoked.prefix})")


def row(token: TokenInfo) -> tuple[str, ...]:
    """One token for a person or a script."""
    return (
        token.prefix,
        token.name,
        ",".join(token.roles),
        _queues(token),
        state(token),
        _moment(token.created_at),
        token.created_by,
        _moment(token.expires_at),
        _moment(token.last_used_at),
        str(token.id),
    )


def _queues(token: TokenInfo) -> str:
    if Role.WORKER not in token.roles:
        return ""
    return "all" if token.queues is None else ",".join(token.queues)


def state(token: TokenInfo) -> str:
    """`usable`, `expired` or `revoked`."""
    if token.is_usable:
        return "usable"
    return "revoked" if token.revoked_at is not None else "expired"


def described(token: TokenInfo) -> str:
    """`token ci (9dd507c6ba9b) is submitter, expires in 90 d`."""
    parts = [f"token {token.name} ({token.prefix}) is {' and '.join(token.roles)}"]
    if token.queues is not None:
        parts.append(f"for the queues {', '.join(token.queues)}")
    if token.expires_at is not None:
        parts.append(f"expires {relative(token.expires_at, token.created_at)}")
    return ", ".join(parts)


def as_json(token: TokenInfo) -> dict[str, Any]:
    """All about a token but its secret."""
    values = {**asdict(token), "id": str(token.id)}
    return {name: v.isoformat() if isinstance(v, datetime) else v for name, v in values.items()}


def _moment(moment: datetime | None) -> str:
    if moment is None:
        return ""
    return relative(moment, datetime.now(UTC)) if sys.stdout.isatty() else moment.isoformat()
