"""Saved searches and exports, over plain HTTP."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import psycopg
import pytest

from tasklib.client.search_terms import quoted
from tasklib.server.dashboard import searches
from tests.dashboard.conftest import Site
from tests.dashboard.filling import HOSTILE, row


@pytest.fixture(autouse=True)
def db(site: Site) -> Iterator[psycopg.Connection]:
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        yield db
        db.execute("DELETE FROM tasks")
        db.execute("DELETE FROM saved_searches")


def csrf(site: Site) -> str:
    text = site.url.http.get("/tokens").text
    return text.split('name="csrf" value="')[1].split('"')[0]


def post(site: Site, path: str, **fields: str) -> str:
    answer = site.url.http.post(path, data={"csrf": csrf(site), **fields}, follow_redirects=True)
    return answer.text


def test_a_search_is_saved_shown_and_deleted_by_operators(site: Site) -> None:
    row_ = "state:failed name:send_*"
    assert "Saved as late mail." in post(site, "/searches/save", name="late mail", q=row_)
    [saved] = site.client.saved_searches()
    assert (saved.name, saved.search) == ("late mail", row_)
    page = site.url.http.get("/tasks").text
    assert "late mail" in page
    assert "Delete this saved search" in site.url.http.get("/tasks", params={"q": row_}).text
    asked = post(site, "/searches/delete", name="late mail", q=row_, ask="Really?")
    assert "Really?" in asked
    assert site.client.saved_searches() != []
    assert "Deleted the saved search" in post(site, "/searches/delete", name="late mail", q=row_)
    assert site.client.saved_searches() == []
    assert [r.action for r in site.client.audit(target="late mail")] == ["search.delete", "search.save"]


def test_a_search_that_means_nothing_is_not_saved(site: Site) -> None:
    assert "Did you mean failed?" in post(site, "/searches/save", name="x", q="state:fialed")
    assert "1 to 100 characters" in post(site, "/searches/save", name=" ", q="state:failed")
    assert site.client.saved_searches() == []


def test_an_export_has_what_the_search_finds_masked_as_shown(site: Site, db: psycopg.Connection) -> None:
    row(db, "dead_letter", name="=cmd()", error="Traceback\nValueError: password=hunter2")
    row(db, name="other")
    text = site.url.http.get("/tasks/export", params={"q": "state:dead_letter", "format": "csv"})
    assert text.headers["content-disposition"] == 'attachment; filename="tasks.csv"'
    [found] = csv.DictReader(io.StringIO(text.text))
    assert (found["name"], found["state"]) == ("'=cmd()", "dead_letter")
    assert "hunter2" not in text.text
    answer = site.url.http.get("/tasks/export", params={"format": "json"}).text
    assert [t["name"] for t in json.loads(answer)] == ["other", "=cmd()"]
    assert json.loads(site.url.http.get("/tasks/export?format=json&q=name:nothing").text) == []
    assert site.url.http.get("/tasks/export", params={"q": "state:fialed"}).status_code == 422


def test_an_export_reads_page_by_page_and_ends_at_its_limit(
    site: Site, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("INSERT INTO tasks (name) SELECT 'n' || n FROM generate_series(1, 25) AS n")
    monkeypatch.setattr(searches, "_PAGE", 4)
    whole = json.loads(site.url.http.get("/tasks/export?format=json").text)
    assert len({task["id"] for task in whole}) == 25
    monkeypatch.setattr(searches, "MOST_EXPORTED", 10)
    assert len(json.loads(site.url.http.get("/tasks/export?format=json").text)) == 10


@pytest.mark.parametrize("evil", HOSTILE[:6])
def test_hostile_names_of_saved_searches_stay_text(site: Site, evil: str) -> None:
    name = evil[:100].strip()
    site.client.save_search(name, f"name:{quoted(evil[:200])}")
    for path in ("/tasks", "/jump?q=a"):
        page = site.url.http.get(path).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "<svg/onload" not in page
    site.client.delete_search(name)
