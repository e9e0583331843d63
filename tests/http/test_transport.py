"""What happens between a client over HTTP and its server: lost answers, refusals, secrets, who is let in, traces."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import tasklib
import tasklib.http
from tasklib import Config, task
from tasklib.client.effects import Pause
from tasklib.errors import (
    AccessDenied,
    ConfigError,
    DatabaseUnavailable,
    InvalidOption,
    NotInitialized,
    SchemaError,
    ServerUnavailable,
    TaskLibError,
    UnexpectedAnswer,
)
from tasklib.http import AsyncHttpClient, HttpClient
from tasklib.http.calls import HttpCalls
from tasklib.http.connection import server_address
from tasklib.http.requests import Answer, NoAnswer, Request
from tasklib.tasks.options import Options
from tasklib.tasks.submitter import Submission
from tests.http.test_same_answers import token_of
from tests.server.api import Api

TOKEN = "tasklib_157a26d8fcf2_" + "s3cret" * 7 + "s"


def asked(call: Any, *answers: Answer | NoAnswer) -> tuple[Any, list[Request], list[float]]:
    """Carry out a call with these answers: what it returns or raises, what it asked, and its pauses."""
    requests: list[Request] = []
    pauses: list[float] = []
    left = list(answers)
    try:
        effect = next(call)
        while True:
            if isinstance(effect, Pause):
                pauses.append(effect.seconds)
                effect = call.send(None)
            else:
                requests.append(effect)
                effect = call.send(left.pop(0))
    except StopIteration as end:
        return end.value, requests, pauses
    except TaskLibError as e:
        return e, requests, pauses


def said(status: int, headers: dict[str, str] | None = None, **body: Any) -> Answer:
    return Answer(status, json.dumps(body).encode(), headers or {})


CALLS = HttpCalls("https://queue.example.com", retries=3)
STORED = {"task_id": "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f", "is_new": True}
LOST, UNREACHED = NoAnswer("reset", was_sent=True), NoAnswer("refused", was_sent=False)
BUSY = said(429, {"retry-after": "2"}, code="rate_limited", detail="Too many.")
AWAY = said(503, {"retry-after": "1"}, code="database_unavailable", detail="The database doesn't answer.")


def submission() -> Any:
    return CALLS.submit_task("other", registered_elsewhere=True)


def test_a_submission_whose_answer_is_lost_is_sent_again_as_it_was() -> None:
    value, requests, pauses = asked(submission(), LOST, UNREACHED, AWAY, said(201, **STORED))
    assert str(value) == STORED["task_id"]
    assert len({request.body for request in requests}) == 1
    assert [0 < pause < 1 for pause in pauses] == [True, True, False]
    assert pauses[2] == 1


def test_trying_ends() -> None:
    error, requests, _ = asked(submission(), *[LOST] * 9)
    assert isinstance(error, ServerUnavailable)
    assert len(requests) == 4
    assert "https://queue.example.com" in str(error)
    error, requests, _ = asked(submission(), said(503, {"retry-after": "3600"}, code="stopping", detail="Gone."))
    assert (type(error), len(requests)) == (ServerUnavailable, 1)


def test_what_may_have_happened_is_not_asked_for_twice() -> None:
    error, requests, _ = asked(CALLS.pause(queue="q"), LOST)
    assert (type(error), len(requests)) == (ServerUnavailable, 1)
    assert str(error).endswith("The request may or may not have taken effect.")
    error, requests, _ = asked(CALLS.pause(queue="q"), AWAY)
    assert (type(error), len(requests)) == (DatabaseUnavailable, 1)


def test_what_has_not_begun_is_asked_for_again() -> None:
    value, requests, pauses = asked(CALLS.pause(queue="q"), UNREACHED, BUSY, said(201, changed=True))
    assert (value, len(requests), pauses[1]) == (True, 3, 2)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (said(401, code="token_missing", detail="Send a token."), AccessDenied, "set TASKLIB_TOKEN"),
        (said(403, code="role_missing", detail="Needs admin.", roles=["admin"]), AccessDenied, "Needs admin."),
        (said(421, code="host_not_allowed", detail="Another."), AccessDenied, "Another."),
        (said(413, code="body_too_large", detail="Too large."), InvalidOption, "Too large."),
        (said(422, code="invalid_request", detail="tags: no."), InvalidOption, "tags: no."),
        (said(503, code="schema_not_current", detail="Migrate."), SchemaError, "Migrate."),
        (said(500, code="internal_error", detail="Logged.", request_id="r1"), UnexpectedAnswer, "internal_error"),
        (said(404, code="not_found", detail="Nothing."), UnexpectedAnswer, "404 not_found"),
        (Answer(200, b"<html>"), UnexpectedAnswer, "Check the URL"),
        (Answer(302, b""), UnexpectedAnswer, "Check the URL"),
        (Answer(404, b'{"detail":"Not Found"}'), UnexpectedAnswer, "Check the URL"),
        (Answer(405, b"[]"), UnexpectedAnswer, "Check the URL"),
    ],
)
def test_what_the_server_says_becomes_an_error_that_says_what_to_do(answer: Answer, kind: type, words: str) -> None:
    error, requests, _ = asked(submission(), answer)
    assert type(error) is kind
    assert words in str(error)
    assert len(requests) == 1


def test_an_error_of_access_says_which_roles_would_do() -> None:
    error, *_ = asked(submission(), said(403, code="role_missing", detail="No.", roles=["submitter"]))
    assert (error.code, error.roles) == ("role_missing", ("submitter",))


def test_something_in_front_of_the_server_is_waited_for() -> None:
    value, requests, _ = asked(submission(), Answer(502, b"<html>bad gateway"), said(201, **STORED))
    assert (str(value), len(requests)) == (STORED["task_id"], 2)
    error, *_ = asked(submission(), *[Answer(504, b"")] * 4)
    assert "something in front of the server" in str(error)


def test_a_transaction_can_not_be_joined_from_here() -> None:
    error, requests, _ = asked(CALLS.submit_task("other", registered_elsewhere=True, connection=object()))
    assert isinstance(error, InvalidOption)
    assert requests == []
    with pytest.raises(InvalidOption, match="whose token"):
        HttpClient("http://localhost").on_behalf_of("somebody")


@pytest.mark.parametrize(
    "given",
    [
        {"url": "localhost:8765"},
        {"url": "ftp://localhost"},
        {"url": "http://user:s3cret@localhost"},
        {"url": "http://localhost?token=s3cret"},
        {"token": "s3cret\r\nX-Evil: 1"},
        {"token": "s3cret s3cret"},
        {"token": "s3crét"},
        {"timeout": 0},
        {"retries": -1},
    ],
)
def test_an_address_that_can_not_be_one_is_refused_without_its_secrets(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        HttpClient(**{"url": "http://localhost", **given})
    assert "s3cr" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://queue.example.com", "http://192.0.2.7:8765", "HTTP://127.0.0.1.evil.example"])
def test_a_token_goes_over_plain_http_to_this_machine_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_ALLOW_HTTP", raising=False)
    for make in (HttpClient, AsyncHttpClient, lambda u, token: server_address(u, token, Config("postgresql://"))):
        with pytest.raises(ConfigError, match=r"https://, or set TASKLIB_ALLOW_HTTP=true") as refused:
            make(url, token=TOKEN)
        assert "s3cret" not in str(refused.value)
    HttpClient(url)  # there is nothing to lose
    HttpClient(url.lower().replace("http:", "https:"), token=TOKEN)
    for near in ("http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"):
        HttpClient(near, token=TOKEN)
    monkeypatch.setenv("TASKLIB_ALLOW_HTTP", "true")
    HttpClient(url, token=TOKEN)


def test_where_the_server_is_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_HTTP_URL", raising=False)
    with pytest.raises(ConfigError, match="TASKLIB_HTTP_URL"):
        HttpClient()
    monkeypatch.setenv("TASKLIB_HTTP_URL", "https://queue.example.com/")
    monkeypatch.setenv("TASKLIB_TOKEN", TOKEN)
    assert (HttpClient().address.url, HttpClient().address.token) == ("https://queue.example.com", TOKEN)


async def test_a_token_is_in_no_repr_error_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    blocking, awaitable = HttpClient(url, token=TOKEN, retries=0), AsyncHttpClient(url, token=TOKEN, retries=0)
    made = [blocking, awaitable]
    with pytest.raises(ServerUnavailable, match="can't be reached") as one:
        blocking.list_tasks()
    with pytest.raises(ServerUnavailable) as other:
        await awaitable.list_tasks()
    shown = [*map(repr, made), *(repr(c.address) for c in made), repr(one.value), repr(other.value), caplog.text]
    assert [text for text in shown if "s3cret" in text] == []


def test_who_is_let_in(api: Api) -> None:
    url = str(api.running)
    with HttpClient(url) as nobody, pytest.raises(AccessDenied, match="token="):
        nobody.list_tasks()
    with HttpClient(url, token=TOKEN) as stranger, pytest.raises(AccessDenied, match="unknown, revoked or expired"):
        stranger.list_tasks()
    with HttpClient(url, token=token_of(api, "viewer")) as viewer, pytest.raises(AccessDenied) as refused:
        viewer.submit_task("other", registered_elsewhere=True)
    assert refused.value.roles == ("submitter",)
    with HttpClient(url, token=token_of(api, "ann")) as ann, HttpClient(url, token=token_of(api, "bob")) as bob:
        hers = ann.submit_task("other", registered_elsewhere=True, idempotency_key="k")
        assert bob.get_task(hers) is None
        assert bob.list_tasks() == []
        his = bob.submit_task("other", registered_elsewhere=True, idempotency_key="k")
        assert his != hers, "a key tells nothing of who else uses it"
        found = bob.get_task(his)
        assert found is not None
        assert found.idempotency_key == "k"


def test_the_id_of_another_task_is_not_taken_for_ones_own(api: Api) -> None:
    url = str(api.running)
    item = Submission("other", {})
    keyed = Submission("other", {}, Options(idempotency_key="b"))
    with HttpClient(url, token=token_of(api, "ann")) as ann, HttpClient(url, token=token_of(api, "bob")) as bob:
        [hers] = ann.submit_each([item])
        for mine in (item, keyed):
            with pytest.raises(InvalidOption, match="belongs to another task"):
                bob.submit_each([mine], ids=[hers.id])
        assert bob.list_tasks() == []


def _whole_request(connection: socket.socket) -> bytes:
    """Its head and its body, which may come one after the other."""
    data = b""
    while part := connection.recv(1 << 16):
        data += part
        head, found, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if found and len(body) >= (int(length[1]) if length else 0):
            break
    return data


class Cutting:
    """A proxy to the server that loses the answers to the first requests."""

    def __init__(self, server: str, lose: int) -> None:
        self.seen = 0
        self._lose = lose
        self._server = httpx.URL(server)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                ours, _ = self._listening.accept()
            except OSError:
                return
            with ours, socket.create_connection((self._server.host, self._server.port or 80)) as theirs:
                self._forward(ours, theirs)

    def _forward(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.seen += 1
        theirs.sendall(_whole_request(ours).replace(b"Connection: keep-alive", b"Connection: close"))
        answer = b""
        while part := theirs.recv(1 << 16):
            answer += part
        if self.seen > self._lose:
            ours.sendall(answer)

    def close(self) -> None:
        self._listening.close()


@contextmanager
def cutting(server: str, lose: int) -> Iterator[Cutting]:
    proxy = Cutting(server, lose)
    try:
        yield proxy
    finally:
        proxy.close()


def test_a_lost_answer_stores_no_second_task(api: Api) -> None:
    with cutting(str(api.running), lose=2) as proxy, HttpClient(proxy.url, token=token_of(api)) as client:
        task_id = client.submit_task("other", registered_elsewhere=True)
        assert proxy.seen == 3
    assert [t.id for t in api.client.list_tasks()] == [task_id]
    with cutting(str(api.running), lose=1) as proxy, HttpClient(proxy.url, token=token_of(api)) as client:
        ids = client.submit_many("other", [{}] * 150, registered_elsewhere=True)
    assert {t.id for t in api.client.list_tasks(limit=1000)} == {task_id, *ids}


def test_pages_are_followed_to_the_end(api: Api) -> None:
    ids = api.client.submit_many("other", [{}] * 450, registered_elsewhere=True)
    with HttpClient(str(api.running), token=token_of(api)) as client:
        assert [t.id for t in client.list_tasks(limit=1000)] == ids[::-1]
        assert [t.id for t in client.list_tasks(limit=401)] == ids[:48:-1]


async def test_waiting_ends_when_the_task_does(api: Api) -> None:
    async with AsyncHttpClient(str(api.running), token=token_of(api)) as client:
        task_id = await client.submit_task("other", registered_elsewhere=True)
        waiting = asyncio.create_task(client.wait_for(task_id, timeout=60))
        await asyncio.to_thread(api.end, task_id, value=7)
        assert await waiting == 7


async def test_module_level_calls_go_over_http(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)

    @task(name="asking.resize")
    def resize(width: int) -> None: ...

    tasklib.http.init(str(api.running), token=token_of(api, "ann"))
    ids = [await resize.submit(width=1), resize.submit_sync(width=2), await tasklib.submit_task(resize, width=3)]
    assert {t.id for t in await tasklib.list_tasks()} == set(ids)
    assert {t.submitted_by for t in tasklib.sync.list_tasks()} == {api.token_ids["ann"]}
    assert tasklib.client.default.configured() is None
    tasklib.close()
    with pytest.raises(NotInitialized):
        resize.submit_sync(width=4)


def test_a_server_with_a_certificate_of_its_own(
    config: Config, server: Callable[..., Any], certificate: tuple[str, str]
) -> None:
    url = server(config, tls_certificate=certificate[0], tls_key=certificate[1])
    with (
        HttpClient(str(url), retries=0) as careful,
        pytest.raises(ServerUnavailable, match="VERIFY_FAILED"),
    ):
        careful.list_tasks()
    for verify in (certificate[0], False, ssl.create_default_context(cafile=certificate[0])):
        with HttpClient(str(url), verify=verify) as client:
            assert client.list_tasks() == []


@pytest.mark.parametrize("count", [1, 2])
def test_the_trace_goes_along(api: Api, spans: Any, count: int) -> None:
    with (
        HttpClient(str(api.running), token=token_of(api)) as client,
        spans.tracer.start_as_current_span("here") as here,
    ):
        ids = client.submit_many("other", [{}] * count, registered_elsewhere=True)
    wanted = f"{here.get_span_context().trace_id:032x}"
    assert {t.trace_id for t in api.client.list_tasks()} == {wanted}
    assert len(ids) == count
    [mine] = [
        s for s in spans.named("submit other") if s.parent and s.parent.span_id == here.get_span_context().span_id
    ]
    # FastAPI may have spans of its own in between, where the server traces too.
    assert f"{mine.context.trace_id:032x}" == wanted
