"""The heroes, and what follows from a new one. `pytest` finds TaskLib's fixtures by itself."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from tasklib.testing import drain_sync


@pytest.fixture
def client() -> Iterator[TestClient]:
    from main import app

    with TestClient(app) as client:
        yield client


def test_a_new_hero_is_welcomed(client: TestClient) -> None:
    created = client.post("/heroes/", json={"name": "Deadpond", "secret_name": "Dive Wilson"}).json()
    assert not created["welcomed"]
    assert drain_sync().counts == {"completed": 1}
    assert client.get(f"/heroes/{created['id']}").json()["welcomed"]


def test_without_a_hero_there_is_no_task(client: TestClient) -> None:
    assert client.post("/heroes/", json={"name": "Nobody"}).status_code == 422
    assert drain_sync().counts == {}
