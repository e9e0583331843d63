"""The server's own settings: a frozen dataclass, a sentence under each field, checked when it is made.

ServerSettings(port=9000, rate_limit_per_second=50)
ServerSettings.from_env()        # TASKLIB_SERVER_HOST, TASKLIB_SERVER_PORT, ...
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasklib import environment
from tasklib.environment import is_loopback
from tasklib.errors import ConfigError

ENV_PREFIX = "TASKLIB_SERVER_"
_LINK = re.compile(r"[^=\s][^=]{0,60}=https?://[^\s\"'<>]{1,2000}", re.IGNORECASE)
_PUBLIC_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All settings of the HTTP server; those of the library are in `Config`."""

    host: str = "127.0.0.1"
    """The address to serve on."""

    port: int = 8765
    """The port to serve on; 0 takes a free one."""

    no_auth: bool = False
    """Ask for no token: every program on this machine may do everything. On loopback only, and only until the first
    token is created. Without it the server doesn't start before there is a token."""

    tls_certificate: str | None = None
    """A file with the certificate and its chain (PEM). With it the server speaks HTTPS only."""

    tls_key: str | None = None
    """A file with the certificate's private key (PEM); None if it is in the same file."""

    modules: tuple[str, ...] = ()
    """Modules with task functions: the arguments of these are checked before a task is stored."""

    dashboard: bool = True
    """Whether to serve the dashboard."""

    lead: bool = True
    """Whether this server may lead: recover tasks of dead workers, delete expired rows, count waiting tasks."""

    metrics: bool = True
    """Whether to serve /metrics."""

    metrics_without_token: bool = False
    """Whether /metrics needs no token. Nothing else is opened by this."""

    public_url: str | None = None
    """Where people reach the server, such as `https://tasks.example.com`, if a proxy speaks TLS for it. With https,
    cookies are `Secure`, and Strict-Transport-Security is sent."""

    allowed_hosts: tuple[str, ...] = ()
    """The names that requests may be meant for (the Host header); none: any. With `no_auth`, names beside localhost."""

    trusted_proxies: tuple[str, ...] = ()
    """Addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted. Default: none."""

    redact: tuple[str, ...] = (
        *("password", "passwd", "passphrase", "secret", "token", "api_key", "authorization", "cookie"),
        *("credential", "private_key", "access_key", "session_id", "card_number", "cvv", "iban"),
    )
    """API and dashboard hide the values of names in which one of these words occurs, unless an operator asks to see
    them; none: nothing is hidden."""

    links: tuple[str, ...] = ()
    """Links on the page of a task, to its trace and logs elsewhere: `Trace=https://tempo.example/trace/{trace_id}`. The
    values are `{trace_id}`, `{task_id}`, `{name}`, `{queue}`, `{worker}`, and the time it ran: `{from_ms}`, `{to_ms}`
    in milliseconds since 1970, `{from}`, `{to}` as ISO 8601."""

    max_body_bytes: int = 2 * 1024 * 1024
    """A request with a larger body is refused unread."""

    max_depth: int = 64
    """How deep the JSON of a request may be nested."""

    max_batch: int = 1000
    """How many tasks, or results, one request may bring."""

    max_page: int = 200
    """How many entries one page of a list may have."""

    max_wait_seconds: float = 30.0
    """The longest duration of a long poll."""

    body_timeout_seconds: float = 10.0
    """How long a client may take to send a body."""

    max_header_bytes: int = 32 * 1024
    """How large the request line and all headers of a request may be together."""

    max_headers: int = 100
    """How many headers a request may have."""

    header_timeout_seconds: float = 10.0
    """How long a client may take to send the headers of a request, counted from its connection or first byte."""

    write_timeout_seconds: float = 30.0
    """A client that doesn't read its response for this long is disconnected."""

    max_connections: int = 1000
    """How many connections the server holds. One more is answered with 503 and closed."""

    max_requests_per_token: int = 100
    """How many requests of one token the server handles at a time; long-polling ones are counted separately."""

    max_waiting_per_token: int = 300
    """How many long-polling requests one token may have at a time: for results, and polls of workers."""

    max_waiting: int = 700
    """How many long-polling requests all tokens may have at a time."""

    max_streams_per_token: int = 50
    """How many event streams one token may have open, those of the dashboard's pages included."""

    max_streams: int = 200
    """How many event streams all tokens may have open together."""

    max_workers_per_token: int = 1000
    """How many live workers may be registered with one token; with the dead ones that are still remembered, ten times
    as many."""

    max_answer_bytes: int = 1024 * 1024
    """A page of a list ends after the task with which it has this many bytes; `next` leads on."""

    max_list_value_bytes: int = 8 * 1024
    """Lists and streams leave out arguments, results and other values that are larger, and say so in `left_out`."""

    max_metric_queues: int = 200
    """How many queues have metrics of their own, the busiest first; the others are counted together as `(other)`."""

    database_timeout_seconds: float = 10.0
    """A statement of the server that is unanswered for this long counts as a lost connection."""

    rate_limit_per_second: float | None = None
    """How many requests a second each token may make; None: any number."""

    logins_per_minute: int = 10
    """How often a token may log in to the dashboard."""

    all_logins_per_minute: int = 300
    """How often all tokens together may."""

    failed_logins_per_minute: int = 60
    """How many logins with a bad token are answered as such; more are answered with 429. Good ones don't count."""

    sessions_per_token: int = 20
    """How many browsers may be logged in with one token. One more ends the oldest of them."""

    shutdown_grace_seconds: float = 10.0
    """How long requests may go on after SIGTERM. Long-polling ones end at once."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be from 0 to 65535, not {self.port}.")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= 2**31 - 1:
                raise ConfigError(f"{name} must be at least {least} and below 2,147,483,648, not {value!r}.")
        if self.no_auth and not self.is_loopback:
            raise ConfigError(
                f"no_auth is for this machine only, and {self.host} can be reached from others. Create a token and "
                "leave --no-auth out: tasklib token create NAME --role admin. Or serve on 127.0.0.1."
            )
        if self.public_url is not None and not _PUBLIC_URL.fullmatch(self.public_url):
            raise ConfigError(f"public_url is such as https://tasks.example.com, not {self.public_url!r}.")
        for link in self.links:
            if not _LINK.fullmatch(link):
                raise ConfigError(f"a link is such as Trace=https://tempo.example/trace/{{trace_id}}, not {link!r}.")
        if self.tls_key and not self.tls_certificate:
            raise ConfigError("tls_key needs tls_certificate, the certificate that this is the key of.")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> ServerSettings:
        """Read TASKLIB_SERVER_<FIELD> variables; keyword arguments win over them. Lists have commas."""
        values = environment.read(cls, ENV_PREFIX, os.environ if environ is None else environ)
        values.update({name: value for name, value in overrides.items() if value is not None})
        return cls(**values)

    @property
    def is_public_https(self) -> bool:
        """True if people reach it over HTTPS, whatever a proxy makes of it."""
        return self.public_url is not None and self.public_url.lower().startswith("https:")

    @property
    def is_loopback(self) -> bool:
        """True if only programs on this machine can reach it."""
        return is_loopback(self.host)


_LEAST: dict[str, float] = {
    "max_body_bytes": 1024,
    "max_depth": 4,
    "max_batch": 1,
    "max_page": 1,
    "max_wait_seconds": 0,
    "body_timeout_seconds": 0.1,
    "max_header_bytes": 1024,
    "max_headers": 10,
    "header_timeout_seconds": 0.1,
    "write_timeout_seconds": 0.1,
    "max_connections": 1,
    "max_requests_per_token": 1,
    "max_waiting_per_token": 1,
    "max_waiting": 1,
    "max_streams_per_token": 1,
    "max_streams": 1,
    "max_workers_per_token": 1,
    "max_answer_bytes": 1024,
    "max_list_value_bytes": 64,
    "max_metric_queues": 1,
    "database_timeout_seconds": 0.1,
    "rate_limit_per_second": 0.01,
    "logins_per_minute": 1,
    "all_logins_per_minute": 1,
    "failed_logins_per_minute": 1,
    "sessions_per_token": 1,
    "shutdown_grace_seconds": 0,
}
