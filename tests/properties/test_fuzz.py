"""Codecs, filters and cursors: whatever comes in is stored and read again as it was, or refused with our own error."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasklib import Client, Config
from tasklib.db.fast_path import array
from tasklib.errors import TaskLibError
from tasklib.tasks.ids import new_id
from tasklib.tasks.payload import dump
from tasklib.tasks.unstorable import UnstorableValue, storable_text

QUICK = settings(max_examples=150, suppress_health_check=list(HealthCheck))
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


def _is_plain(value: Any) -> bool:
    """True for what PostgreSQL's jsonb can hold."""
    match value:
        case str():
            return "\x00" not in value and not any(0xD800 <= ord(c) <= 0xDFFF for c in value)
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_is_plain, value))
        case dict():
            return all(_is_plain(k) and _is_plain(v) for k, v in value.items())
    return True


def _is_same(stored: Any, sent: Any) -> bool:
    """jsonb writes a large float as a whole number: the same float, and another Python type."""
    match sent:
        case list():
            return len(stored) == len(sent) and all(map(_is_same, stored, sent))
        case dict():
            return stored.keys() == sent.keys() and all(_is_same(stored[key], sent[key]) for key in sent)
        case float():
            return float(stored) == sent
    return bool(stored == sent)


@QUICK
@given(JSON)
def test_a_value_is_dumped_as_it_is_or_refused(value: Any) -> None:
    try:
        text = dump(value)
    except UnstorableValue:
        assert not _is_plain(value)
    else:
        assert _is_plain(value)
        assert json.loads(text) == value


@QUICK
@given(ANY_TEXT, st.integers(1, 30))
def test_any_text_becomes_text_that_postgresql_holds(text: str, limit: int) -> None:
    stored = storable_text(text, 1024 * limit)
    assert "\x00" not in stored
    stored.encode()


@pytest.fixture(scope="module")
def fuzzed_url(server_url: str, template_database: str) -> Any:
    from tasklib.testing import databases

    with databases.database(server_url, template_database) as url:
        yield url


def test_arguments_tags_and_results_come_back_as_they_were_sent(fuzzed_url: str) -> None:
    with Client(Config(fuzzed_url)) as client:

        @QUICK
        @given(st.dictionaries(st.text(min_size=1, max_size=10), JSON, max_size=4), st.dictionaries(ANY_TEXT, JSON))
        def there_and_back(kwargs: dict[str, Any], tags: dict[str, Any]) -> None:
            try:
                task_id = client.submit_task(
                    "fuzzed_elsewhere", kwargs=kwargs, tags=tags or None, registered_elsewhere=True
                )
            except TaskLibError:
                assert not (_is_plain(kwargs) and _is_plain(tags))
                return
            found = client.get_task(task_id)
            assert found is not None
            assert _is_same(found.kwargs, kwargs)
            assert _is_same(found.tags, tags)

        there_and_back()


def test_filters_find_what_python_finds_or_are_refused(fuzzed_url: str) -> None:
    names = ["a", "b", "a'b", 'a"b', "a%b", "a_b", "a;--", "é", "\U0001f600"]
    with Client(Config(fuzzed_url)) as client, psycopg.connect(fuzzed_url, autocommit=True) as db:
        db.execute("DELETE FROM tasks")
        for name in names:
            client.submit_task(name, queue=name, tags={name: name}, registered_elsewhere=True)

        @QUICK
        @given(ANY_TEXT | st.sampled_from(names), ANY_TEXT | st.sampled_from(names))
        def filtered(name: str, tag: str) -> None:
            for filters in ({"name": name}, {"queue": name}, {"tags": {tag: name}}, {"state": name}):
                try:
                    found = client.list_tasks(**filters)  # type: ignore[arg-type]
                except TaskLibError:
                    continue
                expected = {n for n in names if filters in ({"name": n}, {"queue": n}, {"tags": {n: n}})}
                if "state" not in filters:
                    assert {t.name for t in found} == expected

        filtered()
        assert len(client.list_tasks()) == len(names)


def test_a_cursor_from_anywhere_gives_the_rest_in_order_or_is_refused(fuzzed_url: str) -> None:
    with Client(Config(fuzzed_url)) as client, psycopg.connect(fuzzed_url, autocommit=True) as db:
        db.execute("DELETE FROM tasks")
        ids = client.submit_many("fuzzed_cursor", [{}] * 20, registered_elsewhere=True)
        newest_first = sorted(ids, reverse=True)

        @QUICK
        @given(st.uuids() | st.sampled_from(newest_first) | ANY_TEXT, st.integers(-2, 30))
        def paged(after: UUID | str, limit: int) -> None:
            try:
                page = client.list_tasks(after=after, limit=limit)
            except TaskLibError:
                assert isinstance(after, str) or limit < 1
                return
            place = after if isinstance(after, UUID) else UUID(after)
            assert [t.id for t in page] == [id_ for id_ in newest_first if id_ < place][:limit]

        paged()


@QUICK
@given(st.lists(ANY_TEXT.filter(_is_plain), max_size=6))
def test_an_array_of_texts_reads_as_postgresql_wrote_it(texts: list[str]) -> None:
    literal = array(texts)
    assert _parsed(literal) == texts


def _parsed(literal: str) -> list[str]:
    """An array literal as PostgreSQL reads it, for quoted elements."""
    assert literal[0] == "{"
    assert literal[-1] == "}"
    found, i = [], 1
    while i < len(literal) - 1:
        if literal[i] == '"':
            i, text = i + 1, ""
            while literal[i] != '"':
                i += literal[i] == "\\"
                text += literal[i]
                i += 1
            found.append(text)
            i += 1
        elif literal[i] == ",":
            i += 1
        else:
            end = min((p for p in (literal.find(",", i), len(literal) - 1) if p != -1), default=len(literal) - 1)
            found.append(literal[i:end])
            i = end
    return found


@QUICK
@given(st.integers(0, 10_000))
def test_ids_made_one_after_the_other_are_in_order(number: int) -> None:
    made = [new_id() for _ in range(number % 50 + 2)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert abs(made[0].int >> 80) - int(datetime.now(UTC).timestamp() * 1000) < 10_000
