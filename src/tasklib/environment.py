"""Settings from environment variables: PREFIX_FIELD for each field of a dataclass. And which hosts are near."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_type_hints
from urllib.parse import urlsplit

from tasklib.errors import ConfigError

_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_SIMPLE = (bool, int, float, str, tuple[str, ...])


def read(settings: type, prefix: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The fields of this dataclass that the environment sets, but for those of a type that has no simple spelling."""
    types = get_type_hints(settings)
    given = {f.name: (environ.get(prefix + f.name.upper()), _kind(types[f.name])) for f in fields(settings)}
    return {name: _parsed(prefix + name.upper(), raw, kind) for name, (raw, kind) in given.items() if raw and kind}


ALLOW_HTTP = "TASKLIB_ALLOW_HTTP"
"""Set to true where the network itself is safe: a token may then go over plain HTTP to other machines."""


def require_https(url: str, token: str | None, environ: Mapping[str, str] | None = None) -> None:
    """ConfigError if a token would cross the network unencrypted."""
    parts = urlsplit(url)
    if token is None or parts.scheme != "http" or is_loopback(parts.hostname or ""):
        return
    environ = os.environ if environ is None else environ
    if not _parsed(ALLOW_HTTP, environ.get(ALLOW_HTTP) or "false", bool):
        raise ConfigError(
            f"over http:// the token is sent unencrypted to {parts.hostname}. Use https://, or set "
            f"{ALLOW_HTTP}=true if the network is trusted."
        )


def is_loopback(host: str) -> bool:
    """True for localhost, 127.0.0.0/8 and ::1."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _kind(annotation: Any) -> Any:
    """What `int | None` and `int` have in common; None if it is nothing simple."""
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return next((kind for kind in _SIMPLE if kind in kinds), None)


def _parsed(variable: str, raw: str, kind: Any) -> Any:
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    try:
        return _BOOLEANS[raw.strip().lower()] if kind is bool else kind(raw)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"{variable} must be {wanted}, not {raw!r}.") from None
