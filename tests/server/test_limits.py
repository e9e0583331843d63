"""Hostile requests: refused, without the server growing or going away."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from tasklib import Config
from tasklib.server.bodies import Limits, is_deeper
from tasklib.server.problems import Problem
from tasklib.server.settings import ServerSettings
from tests.server.conftest import Running, bearer
from tests.server.extra_routes import router

Start = Callable[..., Running]
MIB = 1024 * 1024


def chunks(size: int) -> Iterator[bytes]:
    piece = b" " * 65536
    for _ in range(size // len(piece)):
        yield piece


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_of_ten_mebibytes_is_refused_unread(server: Start, config: Config, announced: bool) -> None:
    url = server(config, router)
    headers = {"Content-Type": "application/json", **({"Content-Length": str(10 * MIB)} if announced else {})}

    answer = url.http.post("/api/test/submitter", content=chunks(10 * MIB), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert url.http.get("/health/ready").status_code == 200


@pytest.mark.parametrize(("announced", "most"), [(True, 0), (False, MIB + 65536)])
async def test_no_more_of_a_body_is_taken_in_than_the_limit(announced: bool, most: int) -> None:
    taken = 0

    async def receive() -> Message:
        nonlocal taken
        taken += 65536
        return {"type": "http.request", "body": b" " * 65536, "more_body": True}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it was handed on")

    headers = [(b"content-type", b"application/json")]
    headers.append((b"content-length", str(10 * MIB).encode()) if announced else (b"transfer-encoding", b"chunked"))
    limits = Limits(app, ServerSettings(max_body_bytes=MIB))
    with pytest.raises(Problem) as refused:
        await limits({"type": "http", "path": "/api/v1/tasks", "headers": headers}, receive, receive)  # type: ignore[arg-type]
    assert refused.value.status == 413
    assert taken <= most


def test_a_stranger_is_refused_before_the_body_is_read(server: Start, config: Config, token: Any) -> None:
    token("viewer")
    url = server(config, router)
    answer = url.http.post(
        "/api/test/submitter", content=chunks(10 * MIB), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 401
    broken = url.http.post("/api/test/submitter", content=b"{", headers={"Content-Type": "application/json"})
    assert broken.status_code == 401


@pytest.mark.parametrize("text", ["[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000, "[" * 500_000])
def test_json_ten_thousand_deep_is_refused_before_it_is_parsed(server: Start, config: Config, text: str) -> None:
    url = server(config, router)
    answer = url.http.post("/api/test/submitter", content=text, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "too_deep")
    assert url.http.get("/health/live").status_code == 200


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("[" * 5 + "]" * 5, 5),
        ('["[[[[[[[[[["]', 1),
        ('["\\"[[[[[[[[[["]', 1),
        ('{"a": [1, {"b": []}], "c": [[], []]}', 4),
        ("[],[],[],[],[],[]", 1),
        ("]]]]]][[", 0),
    ],
)
def test_depth_is_that_of_brackets_outside_of_strings(text: str, depth: int) -> None:
    assert not is_deeper(text.encode(), max(depth, 0))
    assert depth < 1 or is_deeper(text.encode(), depth - 1) or text.count("[") + text.count("{") <= depth - 1


@pytest.mark.parametrize("end", [b"", b'"', b"\\", b"\\\\"])
def test_a_string_without_an_end_takes_no_longer_than_one_with_it(end: bytes) -> None:
    """It did: each quote in it was taken for another beginning, and a mebibyte of them took minutes."""
    text = b'"' + b'\\"' * 500_000 + end
    assert is_deeper(b"[" * 65 + text, 64)
    assert not is_deeper(text + b"[" * 65, 64) or end == b'"'


def test_a_body_that_is_not_json_is_refused(server: Start, config: Config) -> None:
    url = server(config, router)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = url.http.post("/api/test/submitter", content=b"{}", headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "not_json")
    broken = url.http.post("/api/test/submitter", content=b"{", headers={"Content-Type": "application/json"})
    assert (broken.status_code, broken.json()["code"]) == (400, "invalid_json")
    number = url.http.post("/api/test/submitter", content=b"1" * 10_000, headers={"Content-Type": "application/json"})
    assert number.status_code == 400


def said(url: Running, text: bytes) -> bytes:
    """What the server answers to exactly these bytes."""
    with socket.create_connection((url.server.config.host, int(url.rpartition(":")[2])), timeout=60) as raw:
        raw.sendall(text)
        answer = b""
        while b"\r\n\r\n" not in answer and (data := raw.recv(65536)):
            answer += data
    return answer


def test_a_body_that_does_not_come_is_not_waited_for(server: Start, config: Config) -> None:
    url = server(config, router, body_timeout_seconds=0.3)
    head = b"POST /api/test/submitter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = said(url, head + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()
    assert url.http.get("/health/live").status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        b"X-Request-ID: a\r\n b",  # folded
        b"X-Request-ID: a\x00b",
        b"X-Request-ID: a\rSet-Cookie: b=c",
        b"X-Request-ID: <script>",
        b"X-Request-ID: " + b"a" * 65,
        b"Bad Header: a",
        b"Content-Length: -1",
        b"Content-Length: 1\r\nContent-Length: 2",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: nonsense",
        b"X-Long: " + b"a" * 200_000,
    ],
)
def test_no_header_gets_through_that_could_become_another(server: Start, config: Config, header: bytes) -> None:
    url = server(config, router)
    answer = said(url, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n").lower()
    assert answer.startswith((b"http/1.1 200", b"http/1.1 400", b"http/1.1 415", b"http/1.1 501", b""))
    assert b"set-cookie" not in answer
    assert b"<script>" not in answer
    for value in re.findall(rb"x-request-id: ([^\r]*)", answer):
        assert re.fullmatch(rb"[a-z0-9._-]{1,64}", value)
    assert url.http.get("/health/live").status_code == 200


def test_a_harmless_request_id_is_kept(server: Start, config: Config) -> None:
    url = server(config)
    assert url.http.get("/health/live", headers={"X-Request-ID": "a-1.b_2"}).headers["X-Request-ID"] == "a-1.b_2"
    made = [url.http.get("/health/live").headers["X-Request-ID"] for _ in range(2)]
    assert made[0] != made[1]


def test_every_answer_tells_browsers_to_be_careful(server: Start, config: Config) -> None:
    url = server(config, router)
    for path in ("/health/live", "/nowhere", "/api/test/broken"):
        headers = url.http.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert "server" not in headers


def test_a_token_makes_only_so_many_requests_a_second(server: Start, config: Config, token: Callable[..., str]) -> None:
    url = server(config, router, rate_limit_per_second=0.5)
    first, second = bearer(token("viewer")), bearer(token("viewer"))
    assert url.http.get("/api/test/viewer", headers=first).status_code == 200
    answer = url.http.get("/api/test/viewer", headers=first)
    assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
    assert 1 <= int(answer.headers["Retry-After"]) <= 2
    assert url.http.get("/api/test/viewer", headers=second).status_code == 200
    assert url.http.get("/health/live").status_code == 200


# ---- the log ----


def test_the_log_names_who_was_refused_and_holds_no_secret(
    server: Start, config: Config, token: Callable[..., str]
) -> None:
    worker, unknown = token("worker"), f"tasklib_{'0' * 12}_{'s' * 43}"
    with capture_logs() as lines:
        url = server(config, router)
        url.http.get("/api/test/viewer", headers=bearer(worker))
        url.http.get("/api/test/viewer", headers=bearer(unknown))
        url.http.get(f"/nowhere/{worker}/a%0Ab?token={worker}")
        content = json.dumps({"password": "hunter2"})
        headers = {"Content-Type": "application/json", **bearer(worker)}
        url.http.post("/api/test/submitter", content=content, headers=headers)
        url.stop()
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in requests] == [403, 401, 404, 403]
    assert [line.get("token") for line in requests] == [worker[8:20], "0" * 12, None, worker[8:20]]
    assert [line.get("code") for line in requests[:2]] == ["role_missing", "token_invalid"]
    assert requests[0]["actor"] == f"token:worker ({worker[8:20]})"
    assert requests[2]["path"] == f"/nowhere/{worker[:20]}_***/a%0Ab"
    everything = repr(lines)
    for secret in (worker[21:], unknown[21:], "hunter2", "?token"):
        assert secret not in everything


def test_a_broken_route_answers_500_without_details(server: Start, config: Config) -> None:
    with capture_logs() as lines:
        url = server(config, router)
        answer = url.http.get("/api/test/broken", headers={"X-Request-ID": "find-me"})
        url.stop()
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert answer.json()["request_id"] == "find-me"
    assert "hunter2" not in answer.text
    assert any(line["event"] == "request failed" and line["request_id"] == "find-me" for line in lines)
