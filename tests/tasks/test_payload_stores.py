"""Payload stores: what was put is there, in the order of keys, in files and in a server that speaks S3."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.ports import free_port
from tasklib import Config, ConfigError, FileStore, S3Store
from tasklib.config import PayloadStore
from tasklib.tasks.payload_stores import is_key, new_key, store_of
from tests.eventually import eventually

OLD, NEW = "018f0000-0000-7000-8000-000000000001", "019f0000-0000-7000-8000-000000000001"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    pytest.importorskip("moto")
    port = free_port()
    program = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: server.poll() is not None or _answers(port), "the server answers")
        assert server.poll() is None, "the server did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=["files", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PayloadStore:
    if request.param == "files":
        return FileStore(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    endpoint = request.getfixturevalue("s3")
    import boto3

    bucket = f"b-{tmp_path.name.replace('_', '-').lower()}"[:60].rstrip("-")
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)
    return S3Store(bucket, "payloads", endpoint=endpoint, region="us-east-1")


def test_what_was_put_is_there_until_it_is_deleted(store: PayloadStore) -> None:
    key = new_key(OLD, "kwargs")
    store.put(key, b"\x00data")
    store.put(key, b"\x00data again")
    assert store.get(key) == b"\x00data again"
    for _ in range(2):  # deleting what is not there is no error
        store.delete(key)
        with pytest.raises(KeyError):
            store.get(key)


def test_keys_come_in_their_order_page_by_page(store: PayloadStore) -> None:
    keys = sorted(new_key(owner, column) for owner in (NEW, OLD) for column in ("kwargs", "result") for _ in range(3))
    for key in reversed(keys):
        store.put(key, b"x")
    found: list[str] = []
    while page := store.keys(found[-1] if found else "", 5):
        assert len(page) <= 5
        found += page
    assert found == keys
    assert [key.partition("/")[0] for key in keys] == [OLD] * 6 + [NEW] * 6
    assert list(store.keys(f"{OLD}/", 2)) == keys[:2]


@pytest.mark.parametrize("key", ["../../etc/passwd", f"{OLD}/../x", f"{OLD}/kwargs-1", "", None, f"{OLD.upper()}/a"])
def test_no_other_key_reaches_a_store(key: object) -> None:
    assert not is_key(key)
    assert is_key(new_key(OLD, "kwargs"))


def test_a_store_is_chosen_by_its_url(tmp_path: Path) -> None:
    config = Config("postgresql://localhost/app", payload_store=f"file://{tmp_path}")
    assert repr(store_of(config)) == f"FileStore({str(tmp_path)!r})"
    assert store_of(config) is store_of(config.with_changes(max_retries=1))
    assert store_of(config.with_changes(payload_store=None)) is None


@pytest.mark.parametrize(
    ("url", "said"), [("ftp://x/y", "s3://bucket"), ("s3://b/p?regoin=x", "regoin"), ("a/b", "absolute")]
)
def test_a_wrong_url_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        store_of(Config("postgresql://localhost/app", payload_store=url))
