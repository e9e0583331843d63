"""Creating, listing and revoking tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import Client
from tasklib.errors import InvalidOption, TokenNotFound
from tasklib.store import tokens
from tasklib.store.tokens import Role
from tests.client.conftest import Either


async def test_a_new_token_opens_and_is_listed_without_its_secret(either: Either, client: Client) -> None:
    new = await either.create_token("ci", roles=["submitter", "viewer"], expires_in=timedelta(days=90))
    assert new.info.roles == ("viewer", "submitter")
    assert new.info.expires_at - new.info.created_at == timedelta(days=90)
    assert (new.info.queues, new.info.revoked_at, new.info.last_used_at, new.info.is_usable) == (None, None, None, True)
    stored = client.perform(_find(new.info.prefix))
    assert stored.opens_with(new.text)
    listed = await either.tokens()
    assert new.info in listed
    assert new.text[-43:] not in repr(listed) + repr(new)


def _find(prefix: str) -> Any:
    found = yield tokens.find(prefix)
    return found


async def test_a_token_is_revoked_by_id_prefix_or_its_own_text(either: Either) -> None:
    for name_of in (
        lambda new: new.info.id,
        lambda new: str(new.info.id),
        lambda new: new.info.prefix,
        lambda new: f" {new.text}\n",
    ):
        new = await either.create_token("x", roles="viewer")
        revoked = await either.revoke_token(name_of(new))
        assert (revoked.id, revoked.is_usable) == (new.info.id, False)
        assert await either.revoke_token(new.info.id) == revoked


@pytest.mark.parametrize("which", [uuid4(), "0" * 12, f"tasklib_{'0' * 12}_{'s' * 43}"])
async def test_an_unknown_token_is_not_found_and_not_repeated(either: Either, which: UUID | str) -> None:
    with pytest.raises(TokenNotFound, match="tasklib token list") as caught:
        await either.revoke_token(which)
    assert "s" * 43 not in str(caught.value)
    assert caught.value.id_or_prefix == which


@pytest.mark.parametrize("which", ["", "ci", "tasklib_secretsecret", None, 5, "\x00", "0" * 11])
def test_what_names_no_token_is_refused_without_being_repeated(client: Client, which: Any) -> None:
    with pytest.raises(InvalidOption, match="named by its id") as caught:
        client.revoke_token(which)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 101, None, 5, "\ud800"])
def test_a_name_can_be_shown(client: Client, name: Any) -> None:
    with pytest.raises(InvalidOption, match="a token's name"):
        client.create_token(name, roles="viewer")


@pytest.mark.parametrize("roles", [[], ["boss"], "boss", None, 5, ["viewer", 5], [["viewer"]]])
def test_a_token_needs_roles_that_there_are(client: Client, roles: Any) -> None:
    with pytest.raises(InvalidOption, match="role"):
        client.create_token("x", roles=roles)


@pytest.mark.parametrize("queues", [[], [""], [5], 5, ["a\x00"], ["x" * 501]])
def test_queues_are_queues(client: Client, queues: Any) -> None:
    with pytest.raises(InvalidOption, match="queue"):
        client.create_token("x", roles="worker", queues=queues)


def test_queues_limit_workers_only(client: Client) -> None:
    with pytest.raises(InvalidOption, match="doesn't have the role worker"):
        client.create_token("x", roles="operator", queues=["mail"])
    assert client.create_token("x", roles="worker", queues=["b", "a", "b"]).info.queues == ("a", "b")
    assert client.create_token("x", roles="worker", queues="mail").info.queues == ("mail",)


@pytest.mark.parametrize(
    "expires_in", [0, -1, timedelta(0), timedelta(days=36_501), float("nan"), float("inf"), True, "90d"]
)
def test_an_expiry_lies_ahead_and_within_a_century(client: Client, expires_in: Any) -> None:
    with pytest.raises(InvalidOption, match="expires_in"):
        client.create_token("x", roles="viewer", expires_in=expires_in)


def test_nothing_is_created_where_something_is_refused(client: Client, db: psycopg.Connection) -> None:
    before = db.execute("SELECT count(*) FROM api_tokens").fetchone()
    for bad in ({"roles": "boss"}, {"roles": "viewer", "queues": ["a"]}, {"roles": "viewer", "expires_in": 0}):
        with pytest.raises(InvalidOption):
            client.create_token("x", **bad)  # type: ignore[arg-type]
    assert db.execute("SELECT count(*) FROM api_tokens").fetchone() == before


def test_the_roles_of_the_database_are_those_of_the_code(db: psycopg.Connection) -> None:
    row = db.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'api_tokens_roles_known'"
    ).fetchone()
    assert row is not None
    assert "{" + ",".join(Role) + "}" in row[0]
