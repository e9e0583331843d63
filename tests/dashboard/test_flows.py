"""The screens of flows in a browser: the graph, drill-down, every action; pictures in light, dark and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.dashboard import flow_scenes
from tests.dashboard.conftest import Site, assert_fits, portray
from tests.server.conftest import running

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

Tab = Callable[..., "Page"]


@pytest.fixture
def db(site: Site) -> Iterator[psycopg.Connection]:
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        yield db
        db.execute("TRUNCATE flows, gates, arrivals, tasks")


def test_the_list_leads_to_a_graph_and_the_graph_to_its_tasks(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    flow = flow_scenes.catalogue(site.client)
    flow_scenes.advance(db, flow)
    flow_scenes.failed(site.client, db)
    page = tab("/flows")
    page.get_by_text("24 of 49").wait_for()
    portray(page, "flows")
    page.get_by_role("link", name="catalogue import").click()
    page.get_by_role("heading", name="catalogue import").wait_for()
    graph = page.locator(".flow-graph")
    assert graph.locator(".node").count() == 8
    assert graph.locator(".node.waits").count() == 4
    portray(page, "flow")
    graph.get_by_role("link", name="parse: 40 tasks, 22 completed").click()
    page.wait_for_url("**/tasks?q=flow*")
    page.locator("tbody tr").first.wait_for()
    page.get_by_role("link", name="Dead letter", exact=False).last.click()
    page.locator("tbody tr a.name").first.click()
    page.get_by_text("Flow", exact=True).wait_for()
    page.get_by_role("link", name=flow).click()
    page.get_by_role("heading", name="catalogue import").wait_for()


def test_the_graph_changes_while_one_looks(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    flow = flow_scenes.catalogue(site.client)
    page = tab(f"/flows/{flow}")
    graph = page.locator(".flow-graph")
    graph.get_by_role("link", name="fetch: 1 task, 1 pending").wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    graph.evaluate("e => e.scrollTo(150, 0)")
    flow_scenes.advance(db, flow)
    graph.get_by_role("link", name="fetch: 1 task, 1 completed").wait_for()
    page.locator(".flow-graph", has_text="22 of 40").wait_for()
    assert graph.evaluate("e => e.scrollLeft") == 150, "it stays where it was scrolled to"


def test_a_flow_is_cancelled_and_replayed_after_a_question(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    flow = flow_scenes.catalogue(site.client)
    page = tab(f"/flows/{flow}")
    page.get_by_role("link", name="Cancel", exact=True).click()
    page.get_by_role("heading", name="Cancel 49 tasks of the flow catalogue import?").wait_for()
    portray(page, "flow-confirm")
    page.get_by_role("link", name="Back").click()
    page.get_by_role("link", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel 49 tasks").click()
    page.get_by_text("Cancelled 49 tasks.").wait_for()
    assert site.client.get_flow(flow).info.state == "cancelled"
    page.get_by_role("link", name="Replay", exact=True).click()
    page.get_by_role("button", name="Replay 49 tasks").click()
    page.get_by_text("Replayed 49 tasks").wait_for()
    page.locator(".timeline", has_text="flow.cancel").wait_for()
    assert page.get_by_role("link", name="Replay", exact=True).count() == 0


def test_a_group_of_a_hundred_thousand_is_one_node(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    flow = flow_scenes.huge(site.client, db)
    page = tab(f"/flows/{flow}")
    assert page.locator(".flow-graph .node").count() == 2
    page.locator(".flow-graph", has_text="99,998 of 100,000").wait_for()
    portray(page, "flow-huge")
    page.goto(f"/tasks?q=flow:{flow}+node:catalogue.parse+state:pending")
    page.locator("tbody tr").nth(1).wait_for()
    assert page.locator("tbody tr").count() == 2


def test_a_failure_names_its_culprit(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    flow = flow_scenes.failed(site.client, db)
    page = tab(f"/flows/{flow}")
    portray(page, "flow-failed")
    page.get_by_role("link", name="The task it began with").first.click()
    page.get_by_role("heading", name="catalogue.fetch").wait_for()


def test_it_works_without_script(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    flow = flow_scenes.catalogue(site.client)
    page = tab("/flows", java_script_enabled=False)
    page.get_by_role("link", name="catalogue import").click()
    assert page.locator(".flow-graph .node").count() == 8
    page.get_by_role("link", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel 49 tasks").click()
    page.get_by_text("Cancelled 49 tasks.").wait_for()
    assert site.client.get_flow(flow).info.state == "cancelled"


def test_hostile_strings_stay_strings(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    ids = flow_scenes.hostile(site.client)
    page = tab("/flows")
    page.get_by_text("<script>alert(1)</script>").first.wait_for()
    portray(page, "hostile-flows")
    for number, flow in enumerate(ids):
        page.goto(f"/flows/{flow}")
        assert page.locator("main img").count() == 0
        assert page.locator("main script").count() == 0
        assert_fits(page)
        portray(page, f"hostile-flow-{number}")
        page.locator(".flow-graph .node .box").first.click()
        page.locator("tbody tr").first.wait_for()
        page.goto(f"/flows/{flow}/confirm?action=cancel")
        assert_fits(page)
    page.goto("/flows?q=%22%3E%3Cimg%20src=y%20onerror=alert(2)%3E")
    page.get_by_text("No flow fits").wait_for()


# The last one: once there has been a token, the module's server needs one.
def test_a_viewer_sees_flows_and_no_buttons(site: Site, tab: Tab, db: psycopg.Connection) -> None:
    flow = flow_scenes.catalogue(site.client)
    tokens = [site.client.create_token(role, roles=[role]).text for role in ("admin", "viewer")]
    with running(site.config) as url:
        page = tab("/login", at=url, expecting=("403",))
        page.get_by_label("Token").fill(tokens[1])
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        page.goto(f"/flows/{flow}")
        assert page.locator(".flow-graph .node").count() == 8
        for action in ("Cancel", "Replay"):
            assert page.get_by_text(action, exact=True).count() == 0
        page.goto(f"/flows/{flow}/confirm?action=cancel")
        page.locator(".error-page .code", has_text="403").wait_for()
        page.close()
    for text in tokens:
        site.client.revoke_token(text)
