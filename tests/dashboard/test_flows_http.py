"""The screens of flows without a browser: the list, the graph, drill-down, actions that ask first, odd flows."""

from __future__ import annotations

import html
import re
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tasklib import Client
from tasklib.client.flows import FlowDetails
from tasklib.server.dashboard.flow_graph import MOST_DRAWN, drawing
from tasklib.store.flows import GateInfo, NodeInfo
from tests.dashboard import flow_scenes
from tests.dashboard.scenes import HOSTILE
from tests.server.conftest import Running


def _post(web: Running, path: str, **fields: Any) -> httpx.Response:
    return web.http.post(path, data={"csrf": web.app.state.sessions.csrf(None), **fields})


def _links(text: str) -> list[str]:
    return [html.unescape(link) for link in re.findall(r'href="([^"]*)"', text)]


def test_the_list_has_progress_and_leads_to_each_flow(web: Running, client: Client, db: psycopg.Connection) -> None:
    flow = flow_scenes.catalogue(client)
    flow_scenes.advance(db, flow)
    other = flow_scenes.failed(client, db)
    text = web.http.get("/flows").text
    assert "catalogue import" in text
    assert "24 of 49" in text
    assert "left" in text
    assert [link for link in _links(text) if link.startswith("/flows/")] == [f"/flows/{other}", f"/flows/{flow}"]
    assert "catalogue import" not in web.http.get("/flows?q=chain").text
    assert "/flows/" + other not in web.http.get("/flows?state=unfinished").text
    assert "No flow fits" in web.http.get("/flows", params={"q": "x\x00"}).text


def test_pages_of_flows_lead_on(web: Running, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklib.server.dashboard.flows.PAGE", 2)
    ids = [flow_scenes.catalogue(client) for _ in range(3)]
    first = web.http.get("/flows").text
    assert f"after={ids[1]}" in first
    assert f"/flows/{ids[0]}" in web.http.get(f"/flows?after={ids[1]}").text


def test_one_flow_is_a_graph_whose_nodes_lead_to_their_tasks(
    web: Running, client: Client, db: psycopg.Connection
) -> None:
    flow = flow_scenes.catalogue(client)
    flow_scenes.advance(db, flow)
    text = web.http.get(f"/flows/{flow}").text
    for said in ("22 of 40", "at least 95%", "after all ended", "1 dead letter", "left at the pace so far"):
        assert said in text, said
    links = [link for link in _links(text) if "node" in link]
    assert len(links) >= 8
    tasks = web.http.get(next(link for link in links if "node%3Aparse" in link and "dead_letter" in link)).text
    assert "catalogue.parse" in tasks
    assert tasks.count("data-row") == 1, "the dead letter of this node and no other task"
    task = re.search(r"/tasks/([0-9a-f-]{36})", tasks)
    assert task is not None
    assert f'href="/flows/{flow}"' in web.http.get(f"/tasks/{task[1]}").text


def test_a_group_of_many_is_one_node_with_counts(web: Running, client: Client, db: psycopg.Connection) -> None:
    flow = flow_scenes.huge(client, db, 3000)
    text = web.http.get(f"/flows/{flow}").text
    assert "2,998 of 3,000" in text
    assert text.count('class="node ') == 2


def test_a_flow_that_failed_names_what_it_began_with(web: Running, client: Client, db: psycopg.Connection) -> None:
    flow = flow_scenes.failed(client, db)
    ((culprit,),) = db.execute("SELECT id FROM tasks WHERE state = 'dead_letter'").fetchall()
    text = web.http.get(f"/flows/{flow}").text
    assert f'href="/tasks/{culprit}"' in text
    assert "did not run" in text


def test_cancel_and_replay_ask_first_with_verb_flow_and_count(
    web: Running, client: Client, db: psycopg.Connection
) -> None:
    flow = flow_scenes.catalogue(client)
    asked = web.http.get(f"/flows/{flow}/confirm?action=cancel").text
    assert "Cancel 49 tasks of the flow" in asked
    assert "catalogue import" in asked
    assert client.get_flow(flow).info.state == "running"
    assert "confirm it first" in _flash(web, _post(web, f"/flows/{flow}/cancel"))
    assert client.get_flow(flow).info.state == "running"
    assert "Cancelled 49 tasks." in _flash(web, _post(web, f"/flows/{flow}/cancel", confirmed="yes"))
    assert client.get_flow(flow).info.state == "cancelled"
    assert "Nothing to cancel" in _flash(web, _post(web, f"/flows/{flow}/cancel", confirmed="yes"))
    assert "Replay 49 tasks of the flow" in web.http.get(f"/flows/{flow}/confirm?action=replay").text
    assert "Replayed 49 tasks" in _flash(web, _post(web, f"/flows/{flow}/replay", confirmed="yes"))
    assert [r.action for r in client.audit(target=flow)] == ["flow.replay", "flow.cancel"]
    assert "flow.replay" in web.http.get(f"/flows/{flow}").text


def test_what_is_not_there_and_what_can_not_be_done_is_said(web: Running, client: Client) -> None:
    flow = flow_scenes.catalogue(client)
    assert web.http.get(f"/flows/{uuid4()}").status_code == 404
    assert web.http.get("/flows/nothing").status_code == 422
    assert web.http.get(f"/flows/{flow}/confirm?action=burn").status_code == 422
    assert _post(web, f"/flows/{flow}/burn", confirmed="yes").status_code == 303
    assert client.get_flow(flow).info.state == "running"
    assert web.http.post(f"/flows/{flow}/cancel", data={"confirmed": "yes"}).status_code == 403


def test_hostile_names_are_text_and_lead_to_their_tasks(web: Running, client: Client) -> None:
    for flow, evil in zip(flow_scenes.hostile(client), HOSTILE, strict=True):
        answer = web.http.get(f"/flows/{flow}")
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "<img src=x" not in answer.text
        link = next(link for link in _links(answer.text) if "flow%3A" in link and "node%3A" in link)
        found = web.http.get(link)
        assert (found.status_code, found.text.count("data-row")) == (200, 1), evil


def _node(name: str, **states: int) -> NodeInfo:
    return NodeInfo(name, name, sum(states.values()) or 1, states or {"pending": 1})


def _gate(nodes: list[str], waiters: list[str], **policy: Any) -> GateInfo:
    return GateInfo(str(uuid4()), policy or {"kind": "all"}, nodes, waiters, len(nodes), True, 0, 0, None, None, None)


def _details(nodes: list[NodeInfo], gates: list[GateInfo]) -> FlowDetails:
    return FlowDetails(None, nodes, gates)  # type: ignore[arg-type]  # a drawing needs no more


def test_nodes_stand_behind_those_that_they_wait_for() -> None:
    drawn = drawing(_details([_node(n) for n in "abcd"], [_gate(["a"], ["b", "c"]), _gate(["b", "c"], ["d"])]))
    at = {node.name: node.x for node in drawn.nodes}
    assert at["a"] < at["b"] == at["c"] < at["d"]
    assert len(drawn.edges) == 4
    assert drawn.joints == []


def test_many_that_wait_for_many_meet_in_one_point() -> None:
    before, after = [f"a{n}" for n in range(30)], [f"b{n}" for n in range(30)]
    drawn = drawing(_details([_node(n) for n in before + after], [_gate(before, after)]))
    assert (len(drawn.edges), len(drawn.joints)) == (60, 1)


def test_a_graph_with_a_cycle_or_without_end_is_drawn_as_far_as_possible() -> None:
    cycle = drawing(_details([_node("a"), _node("b")], [_gate(["a"], ["b"]), _gate(["b"], ["a"])]))
    assert len(cycle.nodes) == 2
    many = [_node(f"n{n}") for n in range(MOST_DRAWN + 50)]
    gates = [_gate([f"n{n}"], [f"n{n + 1}"]) for n in range(len(many) - 1)]
    drawn = drawing(_details(many, gates))
    assert (len(drawn.nodes), drawn.left_out) == (MOST_DRAWN, 50)
    assert drawing(_details([], [])).nodes == []


def test_one_failure_among_thousands_is_seen() -> None:
    [node] = drawing(_details([_node("a", completed=99_999, dead_letter=1)], [])).nodes
    assert node.state == "dead_letter"
    assert [(bar.state, bar.width >= 1) for bar in node.bars] == [("completed", True), ("dead_letter", True)]


def _flash(web: Running, answer: httpx.Response) -> str:
    assert answer.status_code == 303, answer.text
    return html.unescape(web.http.get(answer.headers["location"]).text)
