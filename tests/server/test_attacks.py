"""Attempts to get in, counted. What each is about is tested elsewhere, one by one; here it is every place.

The numbers are in docs/how-to/tokens-and-audit.md, which must not promise more than is tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from html.parser import HTMLParser
from pathlib import Path

import httpx
import psycopg
import pytest
from fastapi.routing import APIRoute

from tasklib import Client, Config
from tasklib.server.access import roles_of, with_included
from tasklib.server.dashboard import mounting
from tasklib.testing import databases
from tests.dashboard.filling import HOSTILE, hostile_row
from tests.server.api import Api, api_on
from tests.server.conftest import PATIENCE, bearer, running
from tests.server.test_access_matrix import routes

PAGE = Path(__file__).parents[2] / "docs/how-to/tokens-and-audit.md"
ROLES = ["viewer", "submitter", "worker", "approver", "operator", "admin"]
STRANGERS = {
    "nobody": {},
    "unknown": bearer(f"tasklib_{'0' * 12}_{'s' * 43}"),
    "nonsense": bearer("' OR 1=1 --"),
    "basic": {"Authorization": "Basic YWRtaW46YWRtaW4="},
}


def promised(attack: str) -> int:
    """How many attempts the page speaks of."""
    [count] = re.findall(rf"^\| {attack}.* \| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE)
    return int(count.replace(",", ""))


def judge(attack: str, tried: int, escapes: list[object]) -> None:
    print(f"{attack}: {tried} attempts, {len(escapes)} escapes")
    assert escapes == []
    assert tried >= promised(attack), "the page promises more"


@pytest.fixture(scope="module")
def api(server_url: str, template_database: str) -> Iterator[Api]:
    with databases.database(server_url, template_database) as url, api_on(url) as made:
        yield made


def filled_path(route: APIRoute) -> str:
    path = route.path_format
    for parameter in route.param_convertors:
        path = path.replace(f"{{{parameter}}}", "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f")
    return path


def test_every_route_as_everybody_who_may_not(api: Api) -> None:
    callers = {name: (set(), headers) for name, headers in STRANGERS.items()}
    for role in ROLES:
        new = api.client.create_token(role, roles=[role])
        callers[role] = (set(with_included([role])), bearer(new.text))
    for ended in ("revoked_at = now()", "created_at = now() - interval '1 day', expires_at = now() - interval '1 s'"):
        new = api.client.create_token(ended, roles=["admin", "worker"])
        api.db.execute(f"UPDATE api_tokens SET {ended} WHERE id = %s".encode(), [new.info.id])
        callers[ended] = (set(), bearer(new.text))
    tried, escapes = 0, list[object]()
    for route in routes():
        declared = roles_of(route)
        assert declared is not None
        [method] = route.methods
        for name, (roles, headers) in callers.items():
            if not declared or declared & roles:
                continue  # what they get is the table's to say: test_access_matrix.py
            answer = api.running.http.request(method, filled_path(route), headers=headers)
            tried += 1
            if answer.status_code != (403 if roles else 401):
                escapes.append((method, route.path, name, answer.status_code))
    judge("every route", tried, escapes)


def test_every_form_without_its_token_and_from_elsewhere(api: Api) -> None:
    """With the session of an admin, which a browser would send along."""
    new = api.client.create_token("forms", roles=["admin"])
    posts = [r for router in mounting.ROUTERS for r in router.routes if isinstance(r, APIRoute) and "POST" in r.methods]
    tried, escapes = 0, list[object]()
    with httpx.Client(base_url=api.running, timeout=PATIENCE) as browser:
        token = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get("/login").text)
        assert token
        assert browser.post("/login", data={"csrf": token[1], "token": new.text}).status_code == 303
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get("/").text)
        assert found
        good = {"csrf": found[1]}
        forgeries: list[tuple[dict[str, str], dict[str, str]]] = [
            ({}, {}),
            ({"csrf": ""}, {}),
            ({"csrf": "0" * 64}, {}),
            ({"csrf": token[1]}, {}),  # of another session
            (good, {"Sec-Fetch-Site": "cross-site"}),
            (good, {"Sec-Fetch-Site": "same-site"}),
            (good, {"Origin": "https://evil.example"}),
            (good, {"Origin": "null"}),
        ]
        before = picture(api)
        for route in posts:
            for data, headers in forgeries:
                answer = browser.post(filled_path(route), data=data, headers=headers)
                tried += 1
                if answer.status_code != 403:
                    escapes.append((route.path, data, headers, answer.status_code))
        assert picture(api) == before
        assert browser.get("/tokens").status_code == 200, "still logged in"
    judge("every form", tried, escapes)


def picture(api: Api) -> list[object]:
    """Every row of every table that a form may change: all but those that log in, and what the server itself counts."""
    owned = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1"
    tables = [name for (name,) in api.db.execute(owned) if name not in ("api_tokens", "audit")]
    assert {"schedules", "limits", "breakers", "replays", "saved_searches", "steps", "signals", "flows"} <= {*tables}
    return [api.db.execute(f"SELECT t::text FROM {t} AS t ORDER BY 1".encode()).fetchall() for t in tables]


HOSTS = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::1].evil.example", "", "0.0.0.0"]
HOSTS += ["localhost@evil.example", "localhost:80:80", "localhost, evil.example", "localhost/", "LOCALHOST.", "127.1"]
PROXIES = ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"]
PRETENDED = ["X-User", "X-Remote-User", "X-Original-URL", "X-Rewrite-URL", "X-HTTP-Method-Override", "X-Forwarded-User"]
ORIGINS = ["https://evil.example", "null", "http://localhost.evil.example", "file://", "http://127.0.0.1:1"]


def test_headers_that_name_other_hosts_proxies_sites_and_identities(
    api: Api, server_url: str, template_database: str
) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(databases.database(server_url, template_database))
        unlocked = stack.enter_context(running(Config(url), no_auth=True))
        db = stack.enter_context(psycopg.connect(url, autocommit=True))
        assert unlocked.http.get("/api/v1/tokens").status_code == 200, "it is open, so what follows means something"
        attempts = [{"Host": host} for host in HOSTS]
        attempts += [{name: value} for name in PROXIES for value in ("127.0.0.1", "https")]
        attempts += [{"Origin": origin} for origin in ORIGINS]
        tried, escapes = 0, list[object]()
        for headers in attempts:
            answer = unlocked.http.post("/api/v1/tokens", json={"name": "mine", "roles": ["admin"]}, headers=headers)
            tried += 1
            if answer.status_code not in (400, 403, 421):
                escapes.append((headers, answer.status_code))
        assert db.execute("SELECT count(*) FROM api_tokens").fetchone() == (0,)
        cookies = [{"Cookie": f"tasklib_session={value}"} for value in ("", "x", "../../x", "0" * 43)]
        pretended = [{name: value} for name in PRETENDED for value in ("admin", "127.0.0.1", "/api/v1/tokens")]
        for headers in [*attempts, *cookies, *pretended]:
            answer = api.running.http.get("/api/v1/tokens", headers=headers)
            tried += 1
            if answer.status_code not in (400, 401):
                escapes.append((headers, answer.status_code))
    judge("headers that name", tried, escapes)


class Active(HTMLParser):
    """What a browser would run, or fetch, of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_ours = str(given.get("src") or "").startswith("/assets/")
        if (tag in ("script", "img", "iframe", "object", "embed") and not is_ours) or tag == "base":
            self.found.append(tag)
        self.found += [name for name in given if name.startswith("on") or name in ("srcdoc", "style")]
        links = [given.get(name) or "" for name in ("href", "src", "action", "formaction", "hx-get", "hx-post")]
        self.found += [link for link in links if link.strip().lower().startswith(("javascript:", "data:text"))]


def test_hostile_texts_wherever_they_are_shown(api: Api) -> None:
    tried, escapes = 0, list[object]()
    for state in ("completed", "dead_letter", "running"):
        api.clear()
        made = [hostile_row(api.db, evil, state) for evil in HOSTILE]
        pages = ["/", "/tasks", "/queues", "/workers", "/dead-letters"]
        pages += [f"/tasks/{i}{tail}" for i in made for tail in ("", "/edit")]
        with Client(api.config) as client:
            pages += [f"/dead-letters/{group.fingerprint}" for group in client.dead_letter_groups()]
        for path in pages:
            answer = api.admin.get(path, headers={"Accept": "text/html"})
            tried += 1
            if answer.status_code != 200 or Active(answer.text).found:
                escapes.append((path, answer.status_code, Active(answer.text).found))
        for path in ["/api/v1/tasks", *(f"/api/v1/tasks/{i}" for i in made)]:
            answer = api.admin.get(path)
            tried += 1
            if answer.status_code != 200 or answer.headers["content-type"] != "application/json":
                escapes.append((path, answer.status_code))
    api.clear()
    judge("hostile texts", tried, escapes)
