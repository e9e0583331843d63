"""The screens about failures and replays without a browser: who sees and does what, what asks, odd addresses."""

from __future__ import annotations

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.store import failures
from tests.dashboard.conftest import HTML
from tests.dashboard.filling import row
from tests.dashboard.test_tasks_http import post, text_of
from tests.server.conftest import Running, bearer, running

AN_ID = "019345ab-1234-7abc-8def-0123456789ab"


def test_a_replay_is_begun_changed_and_stopped_by_forms(web: Running, client: Client, db: psycopg.Connection) -> None:
    for _ in range(3):
        row(db, "dead_letter", error="Boom", ago=60)
    cause = client.dead_letter_groups()[0].fingerprint
    assert "Replay 3 dead letters" in text_of(web.http.get(f"/failures/{cause}"))
    fields = {"fingerprint": cause, "per_minute": "7.5", "canary": "yes", "ask": "Sure?", "yes": "Replay"}
    assert "Are you sure?" in text_of(post(web, "/replays", **fields)), "the server asks"
    assert client.replays() == []
    assert post(web, "/replays", **fields, confirmed="yes").status_code == 303
    [replay] = client.replays()
    assert (replay.per_minute, replay.canary) == (7.5, "wanted")
    for action, status in (("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("pause", "stopped")):
        assert post(web, f"/replays/{replay.id}/{action}").status_code == 303
        assert client.get_replay(replay.id).status == status
    assert "0 of 3" in text_of(web.http.get("/replays"))
    assert "stopped" in text_of(web.http.get(f"/replays/{replay.id}"))
    assert post(web, "/replays", fingerprint=cause, per_minute="fast").status_code == 303
    assert len(client.replays()) == 1


def test_a_viewer_sees_no_button_and_can_begin_nothing(config: Config, client: Client, db: psycopg.Connection) -> None:
    token = client.create_token("v", roles=["viewer"]).text
    row(db, "dead_letter", error="Boom", ago=60)
    cause = client.dead_letter_groups()[0].fingerprint
    replay = client.start_replay(fingerprint=cause)
    with running(config) as web:
        web.http.headers.update({**HTML, **bearer(token)})
        for path in ("/failures", f"/failures/{cause}", "/replays", f"/replays/{replay.id}"):
            page = web.http.get(path)
            assert page.status_code == 200
            assert 'action="/replays' not in page.text
        assert post(web, "/replays", fingerprint=cause).status_code == 403
        assert post(web, f"/replays/{replay.id}/stop").status_code == 403


def test_the_page_says_how_far_back_the_sample_goes(
    web: Running, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "LOOK", 1)
    for _ in range(2):
        row(db, "dead_letter", error="Boom", ago=60)
    assert "the sample goes back to" in text_of(web.http.get("/failures"))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/failures?range=never", 200),
        ("/failures?since=2026-01-02T00:00&until=2026-01-01T00:00", 422),
        ("/failures?since=soon", 422),
        ("/failures/NOT-A-FINGERPRINT", 422),
        ("/failures/abcdef", 200),
        (f"/replays/{AN_ID}", 404),
        ("/replays/x", 422),
    ],
)
def test_odd_addresses(web: Running, path: str, status: int) -> None:
    assert web.http.get(path).status_code == status


def test_a_share_is_that_of_all_tasks_of_the_cause(web: Running, client: Client, db: psycopg.Connection) -> None:
    for number in range(4):
        tags = [{"customer": 42, "seldom": "yes"}, {}, {"customer": 42}, {}][number]
        row(db, "dead_letter", error="Boom", ago=60, tags=tags)
    cause = client.dead_letter_groups()[0].fingerprint
    listed = " ".join(text_of(web.http.get("/failures")).split())
    assert "customer 42 50%" in listed
    assert "seldom" not in listed, "one task of four says nothing about whom it hits"
    assert "50% 42" in " ".join(text_of(web.http.get(f"/failures/{cause}")).split())
