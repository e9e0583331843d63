"""Flows over HTTP are checked, submitted, shown, cancelled and replayed as with a database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

import tasklib
from tasklib import AsyncClient, Flow, Results, SettledTask, chain, group, task
from tasklib.http import AsyncHttpClient, HttpClient
from tasklib.tasks.ids import new_id
from tasklib.testing import drain, drain_sync
from tests.http.comparing import UNKNOWN, Comparable, failure
from tests.http.test_same_answers import token_of, with_database
from tests.server.api import Api, refused

__all__ = ["with_database"]


class Functions:
    def __init__(self) -> None:
        @task(name="http.fetch", queue="pages", priority="high", tags={"from": "@task"})
        def fetch(url: str) -> str:
            if url == "/broken":
                raise tasklib.Reject("broken")
            return f"page {url}"

        @task(name="http.parse")
        def parse(page: str, limit: int = 10) -> int:
            return len(page) + limit

        @task(name="http.report")
        def report(counts: list[int], title: str = "sum") -> str:
            return f"{title} {sum(counts)}"

        @task(name="http.settled")
        def settled(ends: list[SettledTask[int]]) -> int:
            return sum(end.state == "completed" for end in ends)

        @task(name="http.pages")
        def pages(counts: Results[int]) -> int:
            return sum(counts)

        @task(name="http.merged", unique="pending")
        def merged() -> None: ...

        self.fetch, self.parse, self.report, self.settled, self.pages = fetch, parse, report, settled, pages
        self.merged = merged


@pytest.fixture(autouse=True)
def f(api: Api) -> Iterator[Functions]:
    tasklib.init(api.config)
    yield Functions()
    api.db.execute("TRUNCATE flows, gates, arrivals")


def graph(f: Functions) -> Flow[str]:
    flow: Flow[str] = Flow("import é\u2028")
    page = flow.add(f.fetch.options(queue="other", delay_seconds=0).s("/a"), name="fetch")
    counts = flow.add([f.parse.s(page, limit) for limit in (10, 20)], name="parse")
    none: Any = flow.add([], name="none", after=[page])
    maybe = flow.add(f.fetch.s("/broken"), name="maybe")
    flow.add(f.settled.s(counts), name="settled", when="settled")
    flow.add(f.pages.s(counts), name="pages", after=[none])
    flow.add(f.report.s(counts, title="é"), name="report", optional=[maybe])
    return flow


async def scene(client: Any, f: Functions, api: Api) -> Any:
    """What becomes of flows, with any client."""
    run = await client.submit_flow(graph(f))
    chained = await client.submit_flow(chain(f.fetch.s("/b"), f.parse.s(limit=1)))
    joined = await client.submit_flow(group(f.parse.s("x"), f.parse.s("xy")).then(f.report.s(), at_least=1.0))
    empty = await client.submit_flow(group().then(f.report.s()))
    listed = await client.flows()
    rows = "SELECT name, queue, kwargs, priority, tags, node, args, submitted_by FROM tasks ORDER BY flow, node, id"
    before = [api.db.execute(rows).fetchall(), await client.get_flow(run.id)]
    cancelled = [await client.cancel_flow(joined.id), await client.cancel_flow(joined.id)]
    replayed = await client.replay_flow(joined.id)
    await drain()
    return [
        [type(run).__name__, run.name, run.tasks, run.last],
        [chained.tasks, chained.last, joined.tasks, joined.last, empty.tasks],
        listed,
        before,
        cancelled,
        replayed,
        [await client.wait_for(r.last, timeout=120) for r in (chained, joined, empty)],
        [await client.wait_for(run.tasks[node][0]) for node in ("settled", "pages", "report")],
        await client.get_flow(run.id),
        [(t.node, t.flow == run.id) for t in await client.list_tasks(ids=[i for t in run.tasks.values() for i in t])],
        [flow.name for flow in await client.flows(name="chain")],
        [flow.id for flow in await client.flows(limit=1, after=joined.id)],
        await client.flows(unfinished=True),
        await client.replay_flow(run.id),
        await client.replay_flow(chained.id),
    ]


async def refusals(client: Any, f: Functions) -> Any:
    def added(*args: Any, **options: Any) -> Flow[Any]:
        flow: Flow[Any] = Flow()
        first = flow.add(f.parse.s("x"), name="first")
        flow.add(*args, after=[first], **options)
        return flow

    return [
        await failure(client.submit_flow("chain")),
        await failure(client.submit_flow(Flow("nothing"))),
        await failure(client.submit_flow(chain(f.fetch.s("/a"), f.report.s()))),
        await failure(client.submit_flow(chain(f.parse.s("x"), f.fetch.s()))),
        await failure(client.submit_flow(chain(f.parse.s(page=1)))),
        await failure(client.submit_flow(chain(f.parse.s(pag="x")))),
        await failure(client.submit_flow(added(f.parse.s("x"), at_least=2))),
        await failure(client.submit_flow(chain(f.merged.s()))),
        await failure(client.flows(limit=0)),
        await failure(client.flows(after="?")),
        await failure(client.get_flow(UNKNOWN)),
        await failure(client.cancel_flow(UNKNOWN)),
        await failure(client.replay_flow("?")),
        await client.flows(),
    ]


async def test_flows_are_the_same_with_both_clients(api: Api, with_database: AsyncClient, f: Functions) -> None:
    expected = comparable(await scene(with_database, f, api), await refusals(with_database, f))
    api.clear()
    api.db.execute("TRUNCATE flows, gates, arrivals")
    async with AsyncHttpClient(str(api.running), token=token_of(api)) as over_http:
        found = comparable(await scene(over_http, f, api), await refusals(over_http, f))
    assert found == expected


def comparable(*values: Any) -> Any:
    def timeless(value: Any) -> Any:
        match value:
            case dict():
                return {k: timeless(v) if k != "eta_seconds" else v is None for k, v in value.items()}
            case list():
                return [timeless(v) for v in value]
        return value

    return timeless(Comparable().of(values))


def test_a_flow_over_http_from_synchronous_code_has_a_result_that_blocks(api: Api, f: Functions) -> None:
    with HttpClient(str(api.running), token=token_of(api)) as client:
        run = client.submit_flow(chain(f.fetch.s("/b"), f.parse.s(limit=1)))
        drain_sync()
        assert client.wait_for(run.last, timeout=120) == len("page /b") + 1


BODY: dict[str, Any] = {
    "name": "by hand",
    "nodes": [
        {"name": "a", "task": {"task_type": "elsewhere.a", "parameters": {"x": 1}}},
        {"name": "b", "tasks": [{"task_type": "elsewhere.b", "results": {"y": "a"}}] * 2},
        {"name": "c", "task": {"task_type": "elsewhere.c", "results": {"all": ["a", "b"]}, "pages": ["all"]}},
    ],
}


def test_any_program_submits_a_flow_of_functions_that_the_server_does_not_know(api: Api) -> None:
    answer = api.ann.post("/api/v1/flows", json=BODY)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert {node: len(ids) for node, ids in made["tasks"].items()} == {"a": 1, "b": 2, "c": 1}
    assert api.db.execute("SELECT node, args, waits_for IS NULL FROM tasks ORDER BY id").fetchall() == [
        ("a", {}, True),
        *[("b", {"y": {"task": made["tasks"]["a"][0], "settled": False}}, False)] * 2,
        ("c", {"all": {"nodes": ["a", "b"], "settled": False, "pages": True}}, False),
    ]
    shown = api.ann.get(f"/api/v1/flows/{made['flow_id']}").json()
    assert [(g["nodes"], g["waiters"], g["expected"]) for g in shown["gates"]] == [
        (["a"], ["b"], 1),
        (["a", "b"], ["c"], 3),
    ]
    drawing = api.ann.get(f"/api/v1/flows/{made['flow_id']}/graph", params={"format": "dot"}).json()
    assert '"a" -> "b"' in drawing["text"]


def test_a_submission_that_is_repeated_with_its_id_adds_nothing(api: Api) -> None:
    body = {**BODY, "flow_id": str(new_id())}
    first, second = (api.ann.post("/api/v1/flows", json=body) for _ in range(2))
    assert [first.status_code, second.status_code] == [201, 200]
    assert first.json() == {**second.json(), "is_new": True}
    assert api.db.execute("SELECT count(*) FROM tasks").fetchall() == [(4,)]
    assert api.db.execute("SELECT count(*) FROM gates").fetchall() == [(3,)]


def test_the_id_of_another_flow_is_refused_and_its_owner_not_disturbed(api: Api) -> None:
    body = {**BODY, "flow_id": str(new_id())}
    assert api.ann.post("/api/v1/flows", json=body).status_code == 201
    refused(api.bob.post("/api/v1/flows", json=body), 422, "invalid_option")
    refused(
        api.ann.post("/api/v1/flows", json={**body, "nodes": [{**BODY["nodes"][0], "name": "z"}]}),
        422,
        "invalid_option",
    )
    refused(api.ann.post("/api/v1/flows", json={**body, "flow_id": str(UUID(int=0))}), 422, "invalid_option")
    assert api.db.execute("SELECT count(*) FROM tasks").fetchall() == [(4,)]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"nodes": []}, "invalid_request", "nodes"),
        ({"nodes": [BODY["nodes"][1]]}, "invalid_option", "no node before"),
        ({"nodes": [BODY["nodes"][0]] * 2}, "invalid_option", "two nodes"),
        ({"nodes": [{"name": "a"}]}, "invalid_request", "task or tasks"),
        ({"nodes": [{**BODY["nodes"][0], "after": ["a"]}]}, "invalid_option", "not a node before it"),
        ({"nodes": [{**BODY["nodes"][0], "at_least": 2}]}, "invalid_option", "waits for nothing"),
        (
            {"nodes": [BODY["nodes"][0], {"name": "p", "task": {"task_type": "http.parse", "results": {"pag": "a"}}}]},
            "invalid_arguments",
            "not a parameter",
        ),
        ({"nodes": [{"name": "a", "tasks": [{"task_type": "x"}] * 1001}]}, "batch_too_large", "at most 1000"),
    ],
)
def test_a_graph_that_can_not_run_is_refused(change: dict[str, Any], code: str, words: str, api: Api) -> None:
    problem = refused(api.ann.post("/api/v1/flows", json={**BODY, **change}), 413 if "large" in code else 422, code)
    assert words in problem["detail"]


def test_pages_of_flows_and_their_owners(api: Api) -> None:
    ids = [api.ann.post("/api/v1/flows", json=BODY).json()["flow_id"] for _ in range(3)]
    first = api.viewer.get("/api/v1/flows", params={"limit": 2}).json()
    rest = api.viewer.get("/api/v1/flows", params={"limit": 2, "cursor": first["next"]}).json()
    assert [f["flow_id"] for f in first["flows"] + rest["flows"]] == ids[::-1]
    assert rest["next"] is None
    assert api.bob.get("/api/v1/flows").json() == {"flows": [], "next": None}
    for method, path in [("GET", ""), ("GET", "/graph"), ("POST", "/cancel"), ("POST", "/replay")]:
        refused(api.bob.request(method, f"/api/v1/flows/{ids[0]}{path}"), 404, "flow_not_found")
    assert api.ann.post(f"/api/v1/flows/{ids[0]}/cancel").json() == {"cancelled": 4, "asked": 0}
    assert api.operator.post(f"/api/v1/flows/{ids[0]}/replay").json() == {"count": 4}
    found = api.admin.get("/api/v1/audit", params={"target": ids[0]}).json()["records"]
    assert [(r["action"], r["actor"].split()[0]) for r in found] == [
        ("flow.replay", "token:operator"),
        ("flow.cancel", "token:ann"),
    ]
