"""Who gets in, what a session is, and that no form of another site does anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from structlog.testing import capture_logs

from tasklib import Client, Config
from tasklib.server.dashboard import mounting
from tasklib.server.dashboard.screens import genuine
from tasklib.server.dashboard.shell import SCREENS, local_path
from tasklib.server.problems import Problem
from tasklib.server.sessions import COOKIE, LIFETIME_SECONDS, Sessions
from tests.dashboard.conftest import HTML
from tests.server.conftest import Running, bearer, running


@pytest.fixture
def web(config: Config) -> Iterator[Running]:
    """A server that needs a token, on a database of the test's own."""
    with Client(config) as client:
        client.create_token("the first", roles=["admin"])
    with running(config) as url:
        url.http.headers.update(HTML)
        yield url


def _token(config: Config, *roles: str) -> tuple[str, str]:
    with Client(config) as client:
        new = client.create_token(" ".join(roles), roles=roles)
    return new.text, new.info.prefix


def _csrf(page: httpx.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)
    assert found, page.text
    return found[1]


def _log_in(web: Running, token: str, **fields: str) -> httpx.Response:
    csrf = _csrf(web.http.get("/login"))
    return web.http.post("/login", data={"csrf": csrf, "token": token, **fields})


def _log_in_elsewhere(web: Running, token: str) -> httpx.Response:
    """In another browser."""
    with httpx.Client(base_url=web, headers=HTML, timeout=60) as browser:
        return browser.post("/login", data={"csrf": _csrf(browser.get("/login")), "token": token})


def test_a_stranger_is_led_to_the_login_and_back(web: Running, config: Config) -> None:
    away = web.http.get("/?range=6h")
    assert (away.status_code, away.headers["location"]) == (303, "/login?next=%2F%3Frange%3D6h")
    back = _log_in(web, _token(config, "viewer")[0], next="/?range=6h")
    assert (back.status_code, back.headers["location"]) == (303, "/?range=6h")
    assert web.http.get("/").status_code == 200


def test_the_cookie_says_nothing_about_the_token(web: Running, config: Config) -> None:
    token, prefix = _token(config, "viewer")
    cookie = _log_in(web, token).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie  # this server speaks plain HTTP
    assert prefix not in cookie
    assert token.rpartition("_")[2] not in cookie


def test_the_cookie_opens_no_path_for_programs(web: Running, config: Config) -> None:
    _log_in(web, _token(config, "admin")[0])
    assert web.http.get("/").status_code == 200
    for route in web.app.router.routes:
        if isinstance(route, APIRoute) and route.path.startswith("/api/") and "GET" in (route.methods or ()):
            assert web.http.get(route.path).status_code in (401, 404, 422), route.path


def test_a_bad_token_and_one_without_the_role_stay_outside(web: Running, config: Config) -> None:
    for token in ("tasklib_nonsense", "", _token(config, "worker")[0]):
        refused = _log_in(web, token)
        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers
        assert "token" in refused.text


def test_logging_out_ends_the_session_itself(web: Running, config: Config) -> None:
    _log_in(web, _token(config, "viewer")[0])
    kept = web.http.cookies[COOKIE]
    gone = web.http.post("/logout", data={"csrf": _csrf(web.http.get("/"))})
    assert gone.headers["location"] == "/login"
    with httpx.Client(base_url=web, headers=HTML, cookies={COOKIE: kept}, timeout=60) as thief:
        assert thief.get("/").headers["location"] == "/login"


def test_revoking_the_token_ends_the_session(web: Running, config: Config) -> None:
    token, prefix = _token(config, "viewer")
    _log_in(web, token)
    with Client(config) as client:
        client.revoke_token(prefix)
    web.app.state.services.tokens.forget()  # as the few seconds that an answer is remembered would
    assert web.http.get("/").headers["location"] == "/login"
    assert web.http.get("/login").status_code == 200


def test_a_session_ends_by_itself() -> None:
    now = 0.0
    sessions = Sessions(clock=lambda: now)
    id_ = sessions.begin("tasklib_x")
    now = LIFETIME_SECONDS - 1
    assert sessions.find(id_)
    now = LIFETIME_SECONDS
    assert sessions.find(id_) is None
    assert sessions.find(None) is None


def test_ten_thousand_logins_of_one_token_end_no_session_of_another() -> None:
    sessions = Sessions(per_token=5)
    admin = sessions.begin("tasklib_admin")
    own = [sessions.begin("tasklib_submitter") for _ in range(10_000)]
    assert sessions.find(admin)
    assert [id_ for id_ in own if sessions.find(id_)] == own[-5:], "the oldest of its own are ended"


def test_a_full_server_ends_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklib.server.sessions._MOST", 3)
    now = 0.0
    sessions = Sessions(clock=lambda: now, per_token=2)
    first = [sessions.begin(token) for token in ("a", "b", "c")]
    with pytest.raises(Problem, match="too_many_sessions"):
        sessions.begin("d")
    assert all(map(sessions.find, first))
    now = LIFETIME_SECONDS
    assert sessions.begin("d")


def test_logins_are_limited_for_each_token_and_say_when_to_come_again(
    server: Callable[..., Running], config: Config
) -> None:
    first, second = _token(config, "viewer")[0], _token(config, "viewer")[0]
    web = server(config, logins_per_minute=2)
    assert _log_in(web, first).status_code == 303
    assert [_log_in_elsewhere(web, first).status_code for _ in range(2)] == [303, 429]
    assert web.http.get("/").status_code == 200, "who is logged in stays so"
    refused = _log_in_elsewhere(web, first)
    assert int(refused.headers["Retry-After"]) > 0
    assert _log_in_elsewhere(web, second).status_code == 303, "another token is another matter"


def test_logins_are_limited_for_all_tokens_together(server: Callable[..., Running], config: Config) -> None:
    texts = [_token(config, "viewer")[0] for _ in range(3)]
    web = server(config, all_logins_per_minute=2)
    assert [_log_in_elsewhere(web, text).status_code for text in texts] == [303, 303, 429]


def test_bad_logins_are_limited_and_keep_no_good_one_out(server: Callable[..., Running], config: Config) -> None:
    good = _token(config, "viewer")[0]
    web = server(config, failed_logins_per_minute=2)
    bad = f"tasklib_{'0' * 12}_{'s' * 43}"
    assert [_log_in(web, bad).status_code for _ in range(4)] == [401, 401, 429, 429]
    assert _log_in(web, good).status_code == 303


def test_logins_and_refused_ones_are_in_the_audit_without_a_secret(web: Running, config: Config) -> None:
    token, prefix = _token(config, "viewer")
    bad = f"tasklib_{'0' * 12}_{'s' * 43}"
    for text in (token, bad, "nonsense"):
        _log_in_elsewhere(web, text)
    with Client(config) as client:
        [good] = client.audit(action="login")
        nonsense, unknown = client.audit(action="login.refused")
    assert (good.actor, good.details) == (f"token:viewer ({prefix})", {"client": "127.0.0.1"})
    assert (unknown.actor, unknown.details) == ("unauthenticated", {"client": "127.0.0.1", "prefix": "0" * 12})
    assert nonsense.details == {"client": "127.0.0.1"}
    assert "s" * 43 not in str(unknown)


def test_a_stranger_can_not_fill_the_audit(server: Callable[..., Running], config: Config) -> None:
    _token(config, "viewer")
    web = server(config)
    for _ in range(15):
        _log_in(web, "nonsense")
    with Client(config) as client:
        assert len(client.audit(action="login.refused")) == 10


# ---- behind TLS of a proxy ----


def test_behind_tls_of_a_proxy_the_public_url_makes_cookies_secure_and_https_stay(
    server: Callable[..., Running], config: Config
) -> None:
    token = _token(config, "operator")[0]
    web = server(config, public_url="https://tasks.example.com")
    answer = _log_in(web, token)
    assert "Secure" in answer.headers["set-cookie"]
    for path in ("/login", "/api/v1/tasks", "/health/live", "/nothing-here"):
        assert web.http.get(path).headers["Strict-Transport-Security"] == "max-age=31536000", path


@pytest.mark.parametrize("settings", [{}, {"public_url": "http://tasks.example.com"}])
def test_without_https_nothing_promises_it(
    server: Callable[..., Running], config: Config, settings: dict[str, str]
) -> None:
    token = _token(config, "operator")[0]
    web = server(config, **settings)
    answer = _log_in(web, token)
    assert "Secure" not in answer.headers["set-cookie"]
    assert "Strict-Transport-Security" not in answer.headers


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [({}, True), ({"public_url": "https://tasks.example.com"}, False), ({"trusted_proxies": ("127.0.0.1",)}, False)],
)
def test_a_proxy_that_was_not_told_of_is_named_with_what_to_set(
    server: Callable[..., Running], config: Config, settings: dict[str, Any], is_told: bool
) -> None:
    _token(config, "viewer")
    with capture_logs() as lines:
        web = server(config, **settings)
        for _ in range(2):
            web.http.get("/login", headers={"X-Forwarded-Proto": "https"})
        web.stop()
    hints = [line["hint"] for line in lines if "hint" in line]
    assert len(hints) == is_told, "once"
    assert all("--public-url https://NAME" in hint and "--trusted-proxy" in hint for hint in hints)


def test_a_form_without_its_token_or_from_elsewhere_changes_nothing(web: Running, config: Config) -> None:
    _log_in(web, _token(config, "viewer")[0])
    good = {"csrf": _csrf(web.http.get("/"))}
    assert web.http.post("/logout").status_code == 403
    assert web.http.post("/logout", data={"csrf": "0" * 64}).status_code == 403
    assert web.http.post("/logout", data=good, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert web.http.post("/logout", data=good, headers={"Origin": "https://evil.example"}).status_code == 403
    assert web.http.get("/").status_code == 200
    assert web.http.post("/logout", data=good, headers={"Origin": str(web)}).status_code == 303


def test_every_form_of_the_dashboard_is_checked_to_be_genuine() -> None:
    posts = [
        r
        for router in mounting.ROUTERS
        for r in router.routes
        if isinstance(r, APIRoute) and "POST" in (r.methods or ())
    ]
    assert posts
    for route in posts:
        assert genuine in [d.call for d in route.dependant.dependencies], route.path


def test_a_header_with_a_token_opens_a_page_too(web: Running, config: Config) -> None:
    assert web.http.get("/", headers=bearer(_token(config, "viewer")[0])).status_code == 200


def test_pages_forbid_what_they_do_not_need(web: Running) -> None:
    page = web.http.get("/login")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-frame-options"] == "DENY"
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page.text)


def test_assets_are_kept_for_good_under_their_hash(web: Running) -> None:
    path = re.findall(r'href="(/assets/[^"]+\.css)"', web.http.get("/login").text)[0]
    asset = web.http.get(path)
    assert asset.headers["content-type"].startswith("text/css")
    assert "immutable" in asset.headers["cache-control"]
    old = web.http.get(re.sub(r"/assets/\w+/", "/assets/older/", path))
    assert (old.text, old.headers["cache-control"]) == (asset.text, "no-store")
    assert web.http.get("/assets/x/../../shell.py").status_code == 404


def test_a_browser_gets_errors_as_pages_and_a_program_as_problems(web: Running, config: Config) -> None:
    page = web.http.get("/nothing-here")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Not Found" in page.text
    problem = web.http.get("/nothing-here", headers={"Accept": "application/json"})
    assert problem.json()["code"] == "not_found"
    assert web.http.get("/api/v1/nothing-here").headers["content-type"] == "application/problem+json"


def test_without_tokens_everybody_on_this_machine_is_let_in_and_told_so(
    server: Callable[..., Running], config: Config
) -> None:
    web = server(config)
    web.http.headers.update(HTML)
    page = web.http.get("/")
    assert "no token needed" in page.text
    assert "/logout" not in page.text
    assert web.http.get("/login").headers["location"] == "/"


def test_only_screens_that_are_there_are_in_the_navigation(server: Callable[..., Running], config: Config) -> None:
    web = server(config)
    text = web.http.get("/").text
    served = {getattr(route, "path", "") for route in web.app.router.routes}
    for screen in SCREENS:
        assert (f'href="{screen.path}" data-go' in text) == (screen.path in served)


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/\tx", "data:x"])
def test_a_login_leads_nowhere_else(path: str) -> None:
    assert local_path(path) == "/"
