"""Tokens: what is kept of them, who finds them, and until when they open anything."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from tasklib import Config
from tasklib.db.database import Database, execute
from tasklib.store import audit, tokens
from tasklib.store.tokens import Role, TokenInfo


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


def create(database: Database, text: str | None = None, *, expires_in: float | None = None) -> TokenInfo:
    return database.run(
        tokens.create(
            uuid4(),
            text or tokens.new_text(),
            name="ci",
            roles=[Role.SUBMITTER],
            queues=None,
            expires_in=expires_in,
            by="test",
        )
    )


# ---- the text ----


def test_a_text_has_a_prefix_and_256_bits_that_are_never_the_same() -> None:
    texts = {tokens.new_text() for _ in range(100)}
    assert len({text[-43:] for text in texts}) == len({tokens.prefix_of(text) for text in texts}) == 100
    assert all(re.fullmatch(r"tasklib_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", text) for text in texts)


SECRET = "a" * 43
NO_TOKENS = [
    *("", "tasklib_", "tasklib_0123456789ab_", "x" * 100_000, "\x00", "\ud800"),
    *(f"tasklib_0123456789ab_{secret}" for secret in (SECRET[1:], SECRET + "a", "é" * 43, SECRET + "\n")),
    *(f"{start}_{SECRET}" for start in ("tasklib_0123456789AB", " tasklib_0123456789ab", "tasklib_0123")),
]


@pytest.mark.parametrize("text", NO_TOKENS)
def test_what_cannot_be_a_token_has_no_prefix(text: str) -> None:
    assert tokens.prefix_of(text) is None


def test_a_token_is_named_by_its_prefix_alone_or_in_its_text() -> None:
    text = tokens.new_text()
    prefix = tokens.prefix_of(text)
    assert prefix is not None
    assert tokens.prefix_in(text) == tokens.prefix_in(prefix) == prefix
    assert tokens.prefix_in(prefix[:-1]) is None


# ---- what is kept ----


def test_the_secret_is_in_no_column_and_no_parameter(database: Database, db: psycopg.Connection) -> None:
    text = tokens.new_text()
    query = tokens.create(uuid4(), text, name="ci", roles=[Role.ADMIN], queues=None, expires_in=None, by="test")
    # What is sent may be in the server's log, so the secret isn't sent.
    assert text[-43:] not in repr(query.parameters)
    database.run(query)
    rows = db.execute("SELECT api_tokens::text, encode(hash, 'escape') FROM api_tokens").fetchall()
    rows += db.execute("SELECT audit::text FROM audit").fetchall()
    assert text[-43:] not in repr(rows)
    assert db.execute("SELECT hash FROM api_tokens").fetchone() == (hashlib.sha256(text.encode()).digest(),)


def test_a_token_opens_with_its_text_and_with_no_other(database: Database) -> None:
    text, other = tokens.new_text(), tokens.new_text()
    info = create(database, text)
    found = database.run(tokens.find(info.prefix))
    assert found is not None
    assert found.opens_with(text)
    assert not found.opens_with(other)
    assert not found.opens_with(text[:-1] + ("A" if text[-1] != "A" else "B"))
    assert (found.id, found.name, found.roles, found.queues) == (info.id, "ci", ("submitter",), None)


def test_an_unknown_prefix_finds_nothing(database: Database) -> None:
    create(database)
    assert database.run(tokens.find("000000000000")) is None


def test_no_repr_shows_a_secret(database: Database) -> None:
    text = tokens.new_text()
    info = create(database, text)
    stored = database.run(tokens.find(info.prefix))
    assert stored is not None
    new = tokens.NewToken(text, info)
    for shown in (repr(new), str(new), repr(stored), repr(info), f"{[new, stored]}"):
        assert text[-43:] not in shown
        assert repr(stored.hash) not in shown


@pytest.mark.parametrize(
    "column",
    ["name = ''", "roles = '{}'", "roles = '{boss}'", "queues = '{}'", "hash = 'short'", "prefix = NULL"],
)
def test_the_database_refuses_what_makes_no_token(database: Database, db: psycopg.Connection, column: str) -> None:
    create(database)
    with pytest.raises(psycopg.IntegrityError):
        db.execute(sql.SQL("UPDATE api_tokens SET {}").format(sql.SQL(column)))  # type: ignore[arg-type]


def test_two_tokens_cannot_have_one_prefix(database: Database) -> None:
    text = tokens.new_text()
    create(database, text)
    with pytest.raises(psycopg.errors.UniqueViolation):
        create(database, text)
    assert len(database.run(audit.page(limit=10))) == 1


# ---- until when ----


def test_a_token_expires_by_the_databases_clock(database: Database, config: Config) -> None:
    info = create(database, expires_in=60)
    assert info.expires_at == info.created_at + timedelta(seconds=60)
    # In a transaction the database's clock stands still.
    with psycopg.connect(config.database_url) as connection:
        for expiry, usable in (("now()", False), ("now() + interval '1 microsecond'", True), ("NULL", True)):
            connection.execute(f"UPDATE api_tokens SET expires_at = {expiry}".encode())
            found = execute(connection, tokens.find(info.prefix), None)
            listed = execute(connection, tokens.tokens(), None)
            assert found is not None
            assert found.is_usable is listed[0].is_usable is usable


def test_a_token_that_expired_opens_nothing(database: Database, db: psycopg.Connection) -> None:
    text = tokens.new_text()
    info = create(database, text, expires_in=60)
    db.execute("UPDATE api_tokens SET expires_at = now() - interval '1 s'")
    found = database.run(tokens.find(info.prefix))
    assert found is not None
    assert not found.opens_with(text)


def test_a_revoked_token_opens_nothing_and_stays_listed(database: Database) -> None:
    text = tokens.new_text()
    info = create(database, text)
    revoked = database.run(tokens.revoke(info, by="ann"))
    assert revoked is not None
    assert revoked.revoked_at is not None
    found = database.run(tokens.find(info.prefix))
    assert found is not None
    assert not found.opens_with(text)
    assert database.run(tokens.tokens()) == [revoked]


def test_that_there_ever_was_a_token_is_known_after_its_end(database: Database) -> None:
    assert not database.run(tokens.any_ever())
    database.run(tokens.revoke(create(database), by="test"))
    assert database.run(tokens.any_ever())


def test_of_two_who_revoke_at_once_one_is_recorded(database: Database, config: Config) -> None:
    info = create(database)
    with psycopg.connect(config.database_url) as first, ThreadPoolExecutor() as pool:
        assert execute(first, tokens.revoke(info, by="ann"), None) is not None
        second = pool.submit(database.run, tokens.revoke(info, by="bob"))
        until_somebody_waits(config)
        # Nothing of a transaction that is not over counts yet: whoever uses the token gets in until then.
        with psycopg.connect(config.database_url, autocommit=True) as user:
            found = execute(user, tokens.find(info.prefix), None)
            assert found is not None
            assert found.is_usable
        first.commit()
        assert second.result(120) is None
    records = database.run(audit.page(limit=10, action="token.revoke"))
    assert [r.actor for r in records] == ["ann"]


def test_revoking_whose_answer_was_lost_is_repeated_without_a_second_record(database: Database) -> None:
    query = tokens.revoke(create(database), by="ann")
    assert query.repeatable
    assert database.run(query) is not None
    assert database.run(query) is None
    assert len(database.run(audit.page(limit=10, action="token.revoke"))) == 1


# ---- last used ----


def last_used(db: psycopg.Connection) -> dict[UUID, bool]:
    """Which tokens were used just now."""
    rows = db.execute("SELECT id, COALESCE(last_used_at > now() - interval '30 s', false) FROM api_tokens")
    return dict(rows.fetchall())


def test_use_is_written_down_at_most_once_a_minute(database: Database, db: psycopg.Connection) -> None:
    used, unused = create(database), create(database)
    database.run(tokens.used([used.id]))
    assert last_used(db) == {used.id: True, unused.id: False}
    before = db.execute("SELECT xmin::text, last_used_at FROM api_tokens WHERE id = %s", [used.id]).fetchone()
    database.run(tokens.used([used.id, uuid4()]))
    assert db.execute("SELECT xmin::text, last_used_at FROM api_tokens WHERE id = %s", [used.id]).fetchone() == before
    db.execute("UPDATE api_tokens SET last_used_at = now() - interval '61 s'")
    database.run(tokens.used([used.id, unused.id]))
    assert last_used(db) == {used.id: True, unused.id: True}


def test_nothing_used_is_nothing_written(database: Database, db: psycopg.Connection) -> None:
    info = create(database)
    database.run(tokens.used([]))
    assert last_used(db) == {info.id: False}


def test_noting_the_use_of_a_token_does_not_wait_for_its_revocation(
    database: Database, config: Config, db: psycopg.Connection
) -> None:
    busy, idle = create(database), create(database)
    with psycopg.connect(config.database_url) as revoking:
        execute(revoking, tokens.revoke(busy, by="ann"), None)
        database.run(tokens.used([busy.id, idle.id]))
        assert last_used(db) == {busy.id: False, idle.id: True}


def until_somebody_waits(config: Config) -> None:
    """Look until a statement waits for a lock."""
    with psycopg.connect(config.database_url, autocommit=True) as connection:
        while connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            pass
