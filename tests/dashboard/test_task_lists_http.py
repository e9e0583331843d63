"""What lists of tasks show of arguments, without a browser: short ones, masked, and never ciphertext."""

from __future__ import annotations

import psycopg
import pytest

from tasklib import Client
from tasklib.server.dashboard.filters import arguments
from tasklib.tasks.masking import MASK
from tests.dashboard.conftest import HTML
from tests.dashboard.filling import row
from tests.dashboard.test_tasks_http import text_of
from tests.server.conftest import Running


def test_a_list_shows_short_arguments_beside_the_error_and_leaves_long_ones_to_the_page(
    web: Running, db: psycopg.Connection
) -> None:
    row(db, name="short", kwargs={"order": 7, "to": "ada@example.com", "lines": [1, {"sku": "a"}]})
    row(db, "failed", name="broken", kwargs={"order": 8}, error="Traceback\nValueError: no stock")
    row(db, name="long", kwargs={"text": "".join(map(chr, range(200, 2200)))})
    row(db, name="bare")
    text = text_of(web.http.get("/tasks", headers=HTML))
    assert 'to=ada@example.com, lines=[1, {"sku": "a"}], order=7' in text
    assert "order=8 ValueError: no stock" in text
    assert text.count("on its page") == 1


@pytest.mark.parametrize("place", ["/tasks", "/dead-letters"])
def test_secrets_are_masked_in_the_arguments_and_the_errors_of_lists(
    web: Running, client: Client, db: psycopg.Connection, place: str
) -> None:
    secret = {"to": "ada", "smtp": {"password": "hunter22"}, "url": "https://me:hunter22@mx/"}
    secret |= {"key": {"$secret": "k3y-k3y"}}
    row(db, "dead_letter", name="leaky", kwargs=secret, error="Traceback\nLoginError: hunter22 and k3y-k3y refused")
    if place == "/dead-letters":
        place += f"/{client.dead_letter_groups()[0].fingerprint}"
    page = web.http.get(place, headers=HTML)
    assert "to=ada" in page.text
    assert f"key={MASK}" in page.text
    assert "hunter22" not in page.text
    assert "k3y-k3y" not in page.text


def test_a_sealed_task_shows_no_ciphertext_in_lists(web: Running, db: psycopg.Connection) -> None:
    row(db, name="sealed", kwargs={"$sealed": "c1ph3r"}, key_id="k1")
    page = web.http.get("/tasks", headers=HTML)
    assert ">sealed<" in page.text
    assert "c1ph3r" not in page.text


def test_arguments_are_one_line() -> None:
    assert arguments({"a": "x", "b": None, "c": True, "d": {"$secret": MASK}}) == f"a=x, b=null, c=true, d={MASK}"
