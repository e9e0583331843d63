"""Who gets in: tokens and roles; without them every request is refused."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from structlog.testing import capture_logs

from tasklib import Client, Config
from tasklib.errors import ConfigError, SchemaError
from tasklib.server import token_cache
from tasklib.server.access import Role, roles_of, with_included
from tasklib.server.app import create_app
from tasklib.server.serving import check
from tasklib.server.settings import ServerSettings
from tasklib.store.tokens import NewToken
from tests.server.conftest import PATIENCE, Running, bearer
from tests.server.extra_routes import router

Start = Callable[..., Running]


def test_without_a_token_it_says_what_to_send(server: Start, config: Config, token: Callable[..., str]) -> None:
    token("viewer")
    url = server(config, router)
    answer = url.http.get("/api/test/viewer")
    assert (answer.status_code, answer.json()["code"], answer.json()["roles"]) == (401, "token_missing", ["viewer"])
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="tasklib"'
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer nonsense",
        f"Bearer tasklib_{'0' * 12}_{'s' * 43}",
        "Basic dXNlcjpwYXNz",
        "Bearer tasklib_' OR 1=1 --",
        "\u00e9".encode("latin-1"),
    ],
)
def test_what_opens_nothing_is_refused(server: Start, config: Config, token: Any, header: Any) -> None:
    token("viewer")
    answer = server(config, router).http.get("/api/test/viewer", headers={"Authorization": header})
    assert (answer.status_code, answer.json()["status"]) == (401, 401)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_token_opens_what_its_roles_are_for(server: Start, config: Config, token: Callable[..., str]) -> None:
    url = server(config, router)
    opens = {
        "/api/test/viewer": {"viewer", "approver", "operator", "admin"},
        "/api/test/submitter": {"submitter", "operator", "admin"},
        "/api/test/worker": {"worker"},
    }
    tokens = {role.value: token(role.value) for role in Role}
    for path, roles in opens.items():
        for role, text in tokens.items():
            method = "POST" if path.endswith("submitter") else "GET"
            answer = url.http.request(method, path, headers=bearer(text))
            assert answer.status_code == (200 if role in roles else 403), (path, role, answer.text)
            if role not in roles:
                assert answer.json()["code"] == "role_missing"
                assert answer.json()["roles"] == [path.rpartition("/")[2]]


def test_the_audit_will_know_the_token_and_a_submitter_sees_its_own(
    server: Start, config: Config, new_token: Callable[..., NewToken]
) -> None:
    url = server(config, router)
    new = new_token("viewer")
    seen = url.http.get("/api/test/viewer", headers=bearer(new.text)).json()
    assert seen == {"actor": f"token:viewer ({new.info.prefix})", "queues": None, "only_own": False}
    own = url.http.post("/api/test/submitter", headers=bearer(new_token("submitter").text)).json()
    assert own["only_own"]
    worker = new_token("worker", queues=["mail", "images"]).text
    assert url.http.get("/api/test/worker", headers=bearer(worker)).json() == {"queues": ["images", "mail"]}


def test_a_revoked_token_opens_nothing_within_seconds(
    server: Start, config: Config, new_token: Callable[..., NewToken], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "FRESH_SECONDS", 0.0)
    url = server(config, router)
    new = new_token("viewer")
    assert url.http.get("/api/test/viewer", headers=bearer(new.text)).status_code == 200
    with Client(config) as client:
        client.revoke_token(new.info.id)
    answer = url.http.get("/api/test/viewer", headers=bearer(new.text))
    assert (answer.status_code, answer.json()["code"]) == (401, "token_invalid")
    assert "invalid_token" in answer.headers["WWW-Authenticate"]


def test_an_expired_token_opens_nothing(
    server: Start, config: Config, new_token: Callable[..., NewToken], db: psycopg.Connection
) -> None:
    url = server(config, router)
    new = new_token("viewer", expires_in=3600)
    db.execute("UPDATE api_tokens SET expires_at = now() - interval '1 s', created_at = now() - interval '1 day'")
    assert url.http.get("/api/test/viewer", headers=bearer(new.text)).status_code == 401


def test_that_a_token_was_used_is_written_down(
    server: Start, config: Config, new_token: Callable[..., NewToken]
) -> None:
    new = new_token("viewer")
    url = server(config, router)
    assert url.http.get("/api/test/viewer", headers=bearer(new.text)).status_code == 200
    url.stop()
    with Client(config) as client:
        assert [t.last_used_at is not None for t in client.tokens()] == [True]


def test_a_token_revoked_here_opens_nothing_at_once(
    server: Start, config: Config, new_token: Callable[..., NewToken]
) -> None:
    url = server(config, router)
    new, admin = new_token("viewer"), bearer(new_token("admin").text)
    assert url.http.get("/api/test/viewer", headers=bearer(new.text)).status_code == 200
    assert url.http.delete(f"/api/v1/tokens/{new.info.prefix}", headers=admin).status_code == 200
    assert url.http.get("/api/test/viewer", headers=bearer(new.text)).status_code == 401


def test_the_first_token_made_over_http_ends_open_mode_at_once(server: Start, config: Config) -> None:
    url = server(config, router)
    made = url.http.post("/api/v1/tokens", json={"name": "first", "roles": ["viewer"]}).json()
    assert url.http.get("/api/test/viewer").status_code == 401
    assert url.http.get("/api/test/viewer", headers=bearer(made["token"])).status_code == 200


# ---- default-deny ----


def test_a_route_that_declares_no_role_is_closed(server: Start, config: Config, token: Callable[..., str]) -> None:
    url = server(config, router)
    assert url.http.get("/api/test/forgotten").status_code == 403
    answer = url.http.get("/api/test/forgotten", headers=bearer(token("admin")))
    assert (answer.status_code, answer.json()["code"]) == (403, "route_closed")


def test_every_route_declares_who_may_use_it(config: Config) -> None:
    for route in create_app(config).routes:
        assert roles_of(route) is not None, f"{route} declares no role: Depends(allow(Role...)) or Depends(anybody)"


OPEN_TO_EVERYBODY = {"/health/live", "/health/ready", "/openapi.json"}
OPEN_TO_EVERYBODY |= {"/login", "/logout", "/assets/{hash_}/{name:path}"}


def test_only_these_routes_are_open_to_everybody(config: Config) -> None:
    open_ones = {getattr(r, "path", "") for r in create_app(config).routes if roles_of(r) == frozenset()}
    assert open_ones <= OPEN_TO_EVERYBODY


def test_roles_include_each_other_as_the_page_says() -> None:
    assert with_included(["approver"]) == {Role.APPROVER, Role.VIEWER}
    assert with_included(["operator"]) == {Role.OPERATOR, Role.APPROVER, Role.VIEWER, Role.SUBMITTER}
    assert with_included(["admin"]) == set(Role) - {Role.WORKER}
    assert with_included(["viewer", "of a later version"]) == {Role.VIEWER}


# ---- without tokens ----


def test_with_no_auth_every_program_on_this_machine_may_do_everything(server: Start, config: Config) -> None:
    url = server(config, router, no_auth=True)
    assert url.http.get("/api/test/viewer").json()["actor"] == "anonymous"
    assert url.http.get("/api/test/worker").status_code == 200


async def test_without_a_token_it_starts_only_if_told_to(config: Config, token: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match=r"tasklib token create NAME --role admin.*--no-auth"):
        await check(config, ServerSettings())
    assert await check(config, ServerSettings(no_auth=True))
    token("viewer")
    assert not await check(config, ServerSettings())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "localhost.example.com"])
def test_no_auth_is_for_loopback_only(host: str) -> None:
    with pytest.raises(ConfigError, match=r"this machine only.*tasklib token create"):
        ServerSettings(host=host, no_auth=True)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1"])
def test_no_auth_is_for_every_loopback_address(host: str) -> None:
    assert ServerSettings(host=host, no_auth=True).is_loopback


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "host_not_allowed"),
        ({"Host": "localhost.evil.example:80"}, "host_not_allowed"),
        ({"Host": "127.0.0.1.evil.example"}, "host_not_allowed"),
        ({"Host": "[::1].evil.example"}, "host_not_allowed"),
        ({"Host": "127.0.0.1@evil.example"}, "host_not_allowed"),
        ({"Host": ""}, "host_not_allowed"),
        ({"X-Forwarded-For": "127.0.0.1"}, "local_only"),
        ({"X-Forwarded-Proto": "https"}, "local_only"),
        ({"Via": "1.1 proxy"}, "local_only"),
        ({"Forwarded": "for=127.0.0.1"}, "local_only"),
        ({"Origin": "https://evil.example"}, "origin_not_allowed"),
        ({"Origin": "null"}, "origin_not_allowed"),
    ],
)
def test_with_no_auth_neither_proxies_nor_pages_of_other_sites_get_in(
    server: Start, config: Config, headers: dict[str, str], code: str
) -> None:
    answer = server(config, router).http.post("/api/test/submitter", headers=headers)
    assert answer.status_code in (403, 421)
    assert answer.json()["code"] == code


@pytest.mark.parametrize("named", [True, False])
def test_behind_a_plain_reverse_proxy_nothing_is_open(server: Start, config: Config, token: Any, named: bool) -> None:
    """As nginx with proxy_pass alone: another Host or the server's own, HTTP/1.0, and no word of who is asking."""
    token("viewer")
    url = server(config, router)
    host = "tasks.example.com" if named else url.removeprefix("http://")
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        plain.sendall(f"GET /api/test/viewer HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: plain.recv(65536), b""))
    assert b" 401 " in answer.partition(b"\r\n")[0]


def test_with_no_auth_the_names_that_are_allowed_are_served_too(server: Start, config: Config) -> None:
    url = server(config, router, allowed_hosts=("dev.box", "localhost"))
    assert url.http.get("/api/test/viewer", headers={"Host": "dev.box:8765"}).status_code == 200
    assert url.http.get("/api/test/viewer", headers={"Host": "localhost:8765"}).status_code == 200
    assert url.http.get("/api/test/viewer", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("end", ["revoked_at = now()", "expires_at = now() - interval '1 s'"])
def test_a_server_that_ever_had_a_token_is_never_open_again(
    server: Start, config: Config, token: Callable[..., str], db: psycopg.Connection, end: str
) -> None:
    token("admin")
    db.execute(f"UPDATE api_tokens SET created_at = now() - interval '1 day', {end}".encode())
    url = server(config, router, no_auth=True)
    assert url.http.get("/api/test/viewer").status_code == 401
    made = url.http.post("/api/v1/tokens", json={"name": "mine", "roles": ["admin"]})
    assert made.status_code == 401
    assert db.execute("SELECT count(*) FROM api_tokens").fetchone() == (1,)


def test_the_first_token_ends_open_mode_and_its_end_does_not_restore_it(
    server: Start, config: Config, new_token: Callable[..., NewToken], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "FRESH_SECONDS", 0.0)
    url = server(config, router)
    assert url.http.get("/api/test/viewer").status_code == 200
    new = new_token("viewer")
    assert url.http.get("/api/test/viewer").status_code == 401
    with Client(config) as client:
        client.revoke_token(new.info.id)
    assert url.http.get("/api/test/viewer").status_code == 401


async def test_it_refuses_to_start_on_a_schema_of_another_version(config: Config, db: psycopg.Connection) -> None:
    db.execute("UPDATE tasklib_version SET version_num = '0001'")
    with pytest.raises(SchemaError, match="tasklib migrate"):
        await check(config, ServerSettings(no_auth=True))


def test_only_the_allowed_hosts_are_served(server: Start, config: Config, token: Callable[..., str]) -> None:
    url = server(config, router, allowed_hosts=("tasks.example.com",))
    headers = bearer(token("viewer"))
    assert url.http.get("/api/test/viewer", headers=headers).json()["code"] == "host_not_allowed"
    named = {**headers, "Host": "tasks.example.com:8765"}
    assert url.http.get("/api/test/viewer", headers=named).status_code == 200


@pytest.mark.parametrize(("trusted", "seen"), [((), "127.0.0.1"), (("127.0.0.1",), "192.0.2.7")])
def test_only_a_trusted_proxy_says_who_its_client_is(
    server: Start, config: Config, token: Callable[..., str], trusted: tuple[str, ...], seen: str
) -> None:
    headers = {**bearer(token("viewer")), "X-Forwarded-For": "192.0.2.7"}
    with capture_logs() as lines:
        url = server(config, router, trusted_proxies=trusted)
        assert url.http.get("/api/test/viewer", headers=headers).status_code == 200
        url.stop()
    assert [line["client"] for line in lines if line["event"] == "request"] == [seen]


# ---- TLS ----


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate for localhost and its key."""
    files = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    subprocess.run(["openssl", *made.split(), *names], check=True, capture_output=True)
    return files


def test_with_a_certificate_it_speaks_https_only(server: Start, config: Config, certificate: tuple[str, str]) -> None:
    url = server(config, tls_certificate=certificate[0], tls_key=certificate[1])
    assert url.startswith("https://")
    trusting = ssl.create_default_context(cafile=certificate[0])
    with httpx.Client(verify=trusting, timeout=60) as client:
        assert client.get(f"{url}/health/live").status_code == 200
        with pytest.raises(httpx.HTTPError):
            client.get(f"{url}/health/live".replace("https", "http"))
    with httpx.Client(timeout=60) as suspicious, pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
        suspicious.get(f"{url}/health/live")


async def test_a_certificate_that_cannot_be_used_is_named_before_the_start(config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.pem"):
        await check(config, ServerSettings(tls_certificate=str(tmp_path / "no.pem")))
    with pytest.raises(ConfigError, match="tls_key needs tls_certificate"):
        ServerSettings(tls_key="key.pem")
