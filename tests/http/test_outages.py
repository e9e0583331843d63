"""Waiting for a task over HTTP goes on while the server is away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tasklib import Client, Config, task
from tasklib.http.clients import HttpClient
from tests.eventually import eventually
from tests.server.conftest import Running
from tests.server.outages import way_to


@task
def http_outage_work() -> int:
    return 42


def test_wait_over_http_outlives_an_outage_of_the_server(
    config: Config, db: psycopg.Connection, server: Callable[..., Running]
) -> None:
    with Client(config) as client:
        task_id = client.submit_task(http_outage_work)
    found: list[object] = []
    address = f"postgresql://nobody@127.0.0.1:{urlsplit(str(server(config))).port}/"
    with way_to(Config(address)) as way:
        port = conninfo_to_dict(way.config.database_url)["port"]
        way.refuse()
        with HttpClient(f"http://127.0.0.1:{port}") as client:
            waiting = threading.Thread(target=lambda: found.append(client.wait_for(task_id, timeout=60)))
            waiting.start()
            eventually(lambda: way.refused >= 8, "it tries again and again")
            db.execute("""UPDATE tasks SET state = 'completed', completed_at = now(), result = '{"value": 42}'""")
            way.speak()
            waiting.join(60)
    assert found == [42]
