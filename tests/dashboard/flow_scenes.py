"""Flows as a shop would have them, and flows with hostile strings."""

from __future__ import annotations

import psycopg

from tasklib import Client, Flow, chain, group, task
from tasklib.tasks import registry
from tests.dashboard.scenes import HOSTILE


@task(name="catalogue.fetch")
def fetch(url: str) -> str: ...


@task(name="catalogue.parse")
def parse(page: str, part: int = 0) -> int: ...


@task(name="catalogue.index")
def index(counts: list[int]) -> int: ...


@task(name="catalogue.notify")
def notify(count: int = 0) -> None: ...


def register() -> None:
    for function in (fetch, parse, index, notify):
        registry.register(function)


def catalogue(client: Client) -> str:
    """A flow with a group, an optional node and a join by share, part of which has ended."""
    register()
    flow: Flow[None] = Flow("catalogue import")
    page = flow.add(fetch.s("/catalogue"), name="fetch")
    prices = flow.add(fetch.s("/prices"), name="prices")
    parts = flow.add([parse.s(page, part) for part in range(40)], name="parse")
    stock = flow.add([parse.s(prices, part) for part in range(3)], name="stock")
    indexed = flow.add(index.s(parts), name="index", at_least=0.95)
    flow.add(notify.s(indexed), name="notify", optional=[prices])
    flow.add(notify.s(), name="audit", after=[parts, stock], when="settled")
    flow.add(notify.s(), name="bill", after=[parts, stock], when="settled")
    run = client.submit_flow(flow)
    return str(run.id)


def advance(db: psycopg.Connection, flow: str) -> None:
    """As workers would: the sources are done, some of the parts, too."""
    settle(db, flow, "node IN ('fetch', 'prices')", "completed")
    db.execute("UPDATE tasks SET waits_for = NULL WHERE flow = %s AND node IN ('parse', 'stock')", [flow])
    db.execute(
        "UPDATE gates SET opened_at = now(), completed = 1 WHERE flow = %s AND waiters && '{parse,stock}'", [flow]
    )
    settle(db, flow, "node = 'parse' AND (kwargs ->> 'part')::int < 22", "completed")
    settle(db, flow, "node = 'parse' AND (kwargs ->> 'part')::int = 22", "dead_letter")
    db.execute(
        "UPDATE tasks SET state = 'running', worker_id = 'w1', started_at = now(), "
        "locked_until = now() + interval '1 h' "
        "WHERE flow = %s AND node = 'parse' AND (kwargs ->> 'part')::int BETWEEN 23 AND 26",
        [flow],
    )
    db.execute("UPDATE flows SET created_at = now() - interval '5 min' WHERE id = %s", [flow])


def settle(db: psycopg.Connection, flow: str, which: str, state: str) -> None:
    done = "completed" if state == "completed" else "failed"
    db.execute(
        f"""WITH ended AS (
               UPDATE tasks SET state = %s, completed_at = now(), error = %s WHERE flow = %s AND {which}
               RETURNING reports_to, id, node)
            INSERT INTO arrivals (gate, node, {done}, culprit)
            SELECT unnest(reports_to), node, 1, CASE WHEN %s THEN id END FROM ended""",
        [state, None if done == "completed" else "ValueError: no", flow, done == "failed"],
    )


def failed(client: Client, db: psycopg.Connection) -> str:
    """A flow whose first task failed, so that the others were cancelled."""
    register()
    run = client.submit_flow(chain(fetch.s("/gone"), parse.s(), notify.s()))
    settle(db, str(run.id), "waits_for IS NULL", "dead_letter")
    fold(client)
    return str(run.id)


def huge(client: Client, db: psycopg.Connection, count: int = 100_000) -> str:
    """A group of many tasks: rows of the same node, made in the database."""
    register()
    run = client.submit_flow(group(parse.s("x", 0), parse.s("x", 1)).then(index.s()))
    id_ = str(run.id)
    db.execute(
        """INSERT INTO tasks (name, queue, kwargs, flow, node, reports_to, state, completed_at)
           SELECT name, queue, kwargs, flow, node, reports_to, 'completed', now()
           FROM (SELECT * FROM tasks WHERE flow = %s AND waits_for IS NULL ORDER BY id LIMIT 1) AS one,
                generate_series(3, %s)""",
        [id_, count],
    )
    db.execute("UPDATE gates SET expected = expected + %s, completed = %s WHERE flow = %s", [count - 2, count - 2, id_])
    return id_


def hostile(client: Client) -> list[str]:
    register()
    ids = []
    for evil in HOSTILE:
        flow: Flow[None] = Flow(evil[:400])
        first = flow.add(fetch.s(evil[:400]), name=evil[:400])
        many = flow.add([parse.s(first) for _ in range(2)], name=f"{evil[:390]} 2")
        flow.add(index.s(many), name=f"{evil[:390]} 3")
        ids.append(str(client.submit_flow(flow).id))
    return ids


def fold(client: Client) -> None:
    from tasklib.client.flows import folded

    client.perform(folded())
