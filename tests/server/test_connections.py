"""Connections, attacked with raw sockets: what a strict HTTP server refuses, and how long it waits."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn.config

from tasklib import Config
from tasklib.testing import databases
from tests.server.conftest import PATIENCE, Running, running

Start = Callable[..., Running]
SLOW = 3.0
"""Seconds until headers are late: what a test sends at once comes before that."""
HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def url(server_url: str, template_database: str) -> Iterator[Running]:
    """One server for all attacks that it has to survive."""
    with databases.database(server_url, template_database) as database, running(Config(database)) as made:
        yield made


def connect(url: Running) -> socket.socket:
    return socket.create_connection((url.server.config.host, int(url.rpartition(":")[2])), timeout=PATIENCE)


def answered(raw: socket.socket) -> bytes:
    """Everything that comes until the server closes the connection."""
    answer = b""
    try:
        while data := raw.recv(65536):
            answer += data
    except ConnectionResetError:
        pass
    return answer


def said(url: Running, text: bytes) -> bytes:
    with connect(url) as raw:
        raw.sendall(text)
        return answered(raw)


def problem(answer: bytes) -> tuple[int, str]:
    """The status and the code of the only answer that came."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    assert b"connection: close" in head.lower()
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)["code"]


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(
            POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEAD + b"\r\n",
            id="content length with transfer encoding",
        ),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HEAD + b"\r\n",
            id="transfer encoding with content length",
        ),
        pytest.param(
            POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="transfer encoding in HTTP 1.0",
        ),
        pytest.param(POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", id="two content lengths"),
        pytest.param(POST + b"Content-Length: +2\r\n\r\n{}", id="content length with a sign"),
        pytest.param(POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", id="unknown transfer encoding"),
        pytest.param(POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", id="space before the colon"),
        pytest.param(HEAD.replace(b"\r\n", b"\n") + b"\n", id="only bare newlines"),
        pytest.param(HEAD + b"X-A: b\nX-C: d\r\n\r\n", id="bare newline between headers"),
        pytest.param(b"GET /health/live HTTP/1.1\nHost: localhost\r\n\r\n", id="bare newline in the request line"),
        pytest.param(HEAD + b"\n", id="bare newline at the end"),
        pytest.param(HEAD + b"X-A: b\rX-C: d\r\n\r\n", id="bare carriage return"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\n" + HEAD + b"\r\n",
            id="bare newline after the last chunk",
        ),
        pytest.param(HEAD.replace(b"Host: localhost\r\n", b"") + b"\r\n", id="no host"),
        pytest.param(HEAD + b"Host: other\r\n\r\n", id="two hosts"),
    ],
)
def test_a_request_that_a_proxy_could_read_otherwise_is_refused_and_the_connection_closed(
    url: Running, attack: bytes
) -> None:
    status, code = problem(said(url, attack))
    assert (status, code) in ((400, "bad_request"), (501, "bad_request")), (status, code)
    assert url.http.get("/health/live").status_code == 200


def test_a_bare_newline_is_refused_in_a_pipelined_request_too(url: Running) -> None:
    answer = said(url, HEAD + b"\r\n" + HEAD + b"X-A: b\nX-C: d\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 400 ") == 1


def test_a_request_in_pieces_is_answered(url: Running) -> None:
    """The head is checked as it comes, with a line end torn apart."""
    with connect(url) as raw:
        for byte in HEAD + b"Connection: close\r\n\r\n":
            raw.sendall(bytes([byte]))
        assert answered(raw).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("beginning", [b"", HEAD, HEAD + b"X-A: "])
def test_a_head_that_never_ends_is_not_waited_for(server: Start, config: Config, beginning: bytes) -> None:
    url = server(config, header_timeout_seconds=SLOW)
    answer = said(url, beginning)
    if beginning:
        assert problem(answer) == (408, "headers_too_slow")
    else:
        assert answer == b""


def test_a_second_head_on_the_same_connection_is_not_waited_for_either(server: Start, config: Config) -> None:
    url = server(config, header_timeout_seconds=SLOW)
    answer = said(url, HEAD + b"\r\n" + HEAD)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"headers_too_slow" in answer


@pytest.mark.parametrize(
    "headers",
    [b"X-A: " + b"a" * 40_000 + b"\r\n", b"X-A: b\r\n" * 101],
    ids=["one that is large", "many"],
)
@pytest.mark.parametrize("end", [b"\r\n", b""], ids=["whole", "unfinished"])
def test_headers_beyond_their_limits_are_refused(server: Start, config: Config, headers: bytes, end: bytes) -> None:
    is_counted_late = headers.startswith(b"X-A: b") and not end
    url = server(config, header_timeout_seconds=SLOW if is_counted_late else PATIENCE)
    answer = said(url, HEAD + headers + end)
    if is_counted_late:
        assert problem(answer) == (408, "headers_too_slow"), "they are counted when all are there"
    else:
        assert problem(answer) == (431, "headers_too_large")


def test_a_connection_beyond_the_limit_is_told_so(server: Start, config: Config) -> None:
    url = server(config, max_connections=2)
    with connect(url) as first, connect(url) as second:
        for raw in (first, second):
            raw.sendall(HEAD + b"\r\n")
            assert raw.recv(65536).startswith(b"HTTP/1.1 200 ")
        answer = said(url, HEAD + b"\r\n")
        assert problem(answer) == (503, "too_many_connections")
        assert b"retry-after: " in answer.lower()
        assert b"max_connections" in answer
    with connect(url) as again:
        again.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert again.recv(65536)


def test_a_client_that_does_not_read_its_answers_is_cut_off(server: Start, config: Config) -> None:
    url = server(config, write_timeout_seconds=0.2)
    with connect(url) as raw:
        # Far more than what the two kernels buffer.
        sender = threading.Thread(
            target=lambda: ended_by_peer(raw, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        )
        sender.start()
        sender.join(PATIENCE)
        assert not sender.is_alive(), "the connection is still there"


def ended_by_peer(raw: socket.socket, request: bytes) -> None:
    """Send a request again and again, and read nothing, until the connection ends."""
    try:
        while True:
            raw.sendall(request * 100)
    except OSError:
        return


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_answer_is_sent_without_delay(
    server: Start, config: Config, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nagle's algorithm and the client's delayed acknowledgement together cost 40 ms for each answer."""
    monkeypatch.setitem(uvicorn.config.LOOP_FACTORIES, "auto", uvicorn.config.LOOP_FACTORIES[loop])
    url = server(config)
    assert url.http.get("/health/live").status_code == 200
    connections: list[Any] = list(url.server.server_state.connections)
    accepted = [connection.transport.get_extra_info("socket") for connection in connections]
    assert [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for s in accepted] == [1]
