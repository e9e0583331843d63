from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasklib.testing import databases
from tests.server.api import Api, api_on
from tests.server.conftest import server
from tests.tracing.conftest import spans

__all__ = ["server", "spans"]


@pytest.fixture(scope="module")
def module_api(server_url: str, template_database: str) -> Iterator[Api]:
    """One server with tokens for a module of tests."""
    with databases.database(server_url, template_database) as url, api_on(url) as made:
        yield made


@pytest.fixture
def api(module_api: Api) -> Iterator[Api]:
    """The module's server, with empty tables after each test."""
    yield module_api
    module_api.clear()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate that no client trusts, for this machine, and its key."""
    certificate, key = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=tasklib"
    where = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run([*command.split(), *where], check=True, capture_output=True)
    return certificate, key
