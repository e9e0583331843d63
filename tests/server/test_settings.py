"""The server's settings, from the environment and checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasklib import Config
from tasklib.config import Retention
from tasklib.environment import is_loopback
from tasklib.errors import ConfigError
from tasklib.server.settings import ServerSettings
from tests.server.conftest import Running


def test_settings_come_from_the_environment_and_arguments_win() -> None:
    environment = {
        "TASKLIB_SERVER_PORT": "9000",
        "TASKLIB_SERVER_ALLOWED_HOSTS": "a.example, b.example",
        "TASKLIB_SERVER_DASHBOARD": "off",
        "TASKLIB_SERVER_RATE_LIMIT_PER_SECOND": "2.5",
        "TASKLIB_SERVER_MODULES": "",
    }
    settings = ServerSettings.from_env(environment, host="::1", port=None)
    assert (settings.host, settings.port, settings.dashboard) == ("::1", 9000, False)
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.rate_limit_per_second == 2.5
    assert settings.modules == ()
    assert ServerSettings.from_env(environment, port=1).port == 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PORT", "http", "a whole number"),
        ("PORT", "70000", "from 0 to 65535"),
        ("DASHBOARD", "perhaps", "true or false"),
        ("MAX_BODY_BYTES", "0", "at least 1024"),
        ("MAX_WAIT_SECONDS", "-1", "at least 0"),
        ("MAX_WAIT_SECONDS", "nan", "at least 0"),
        ("BODY_TIMEOUT_SECONDS", "soon", "a number"),
        ("PUBLIC_URL", "tasks.example.com", "https://tasks.example.com"),
        ("PUBLIC_URL", "https://user:password@example.com", "https://tasks.example.com"),
        ("LOGINS_PER_MINUTE", "0", "at least 1"),
    ],
)
def test_a_setting_that_can_not_be_used_is_named(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        ServerSettings.from_env({f"TASKLIB_SERVER_{name}": value})
    assert name.lower() in str(caught.value).lower()


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("10.0.0.1", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_dashboard_says_that_finished_tasks_stay_for_ever_without_a_retention(
    config: Config, server: Callable[..., Running]
) -> None:
    assert "Finished tasks stay for ever" in server(config).http.get("/settings").text
    ruled = config.with_changes(retention=(Retention("completed", days=30),))
    page = server(ruled).http.get("/settings").text
    assert "stay for ever" not in page
    assert "completed are deleted after 30 days" in page
