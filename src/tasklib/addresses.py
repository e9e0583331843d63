"""Where a database is: connection strings and schemas, checked, and whether two strings name the same server."""

from __future__ import annotations

import re
from pathlib import Path

from tasklib.errors import ConfigError

# The channel is named after the schema, and PostgreSQL cuts channel names at 63 bytes.
MAX_SCHEMA_BYTES = 55


def checked_url(name: str, url: object) -> str:
    """The connection string without the driver that SQLAlchemy writes into it; ConfigError if libpq refuses it."""
    if not isinstance(url, str) or not url.strip():
        # A URL in the wrong type, such as bytes, may hold a password all the same: name the type, not the value.
        got = "an empty string" if isinstance(url, str) else f"a value of type {type(url).__name__}"
        raise ConfigError(f"{name} must be a PostgreSQL URL such as postgresql://user@host/db, not {got}.")
    plain = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", url.strip())
    scheme = plain.partition("://")[0] if "://" in plain else None
    if scheme not in (None, "postgres", "postgresql"):
        raise ConfigError(f"{name} starts with {scheme}://, but TaskLib needs PostgreSQL: postgresql://user@host/db.")
    if plain in ("postgres://", "postgresql://"):
        return plain  # nothing in it to check: libpq's defaults, or a program that never connects
    # Imported here: a module that only defines tasks has no configuration, and needs no driver.
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(plain)
    except ProgrammingError as e:
        # libpq quotes the invalid part, which may be the password or a part of it.
        reason = re.sub(r'".*"', '"…"', str(e).strip(), flags=re.DOTALL)
        raise ConfigError(f"{name} is not a connection string PostgreSQL understands: {reason}.") from None
    # An @ or / in a password shifts what follows: a piece of it would turn up as the host in every error message.
    read = f"{parts.get('host', '')}{parts.get('dbname', '') if scheme else ''}"
    if "@" in read or not re.fullmatch(r"[\d,]*", str(parts.get("port", ""))):
        raise ConfigError(
            f"{name} has an invalid host or port. In a user or password, write @ as %40, / as %2F, : as %3A."
        )
    return plain


def url_in_file(file: Path) -> str:
    """The database's URL from a file, such as a mounted secret."""
    try:
        url = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"the database's URL can't be read from {file}: {e}.") from None
    if not url:
        raise ConfigError(f"{file} is empty. It should hold the database's URL: postgresql://user@host/db.")
    return url


def check_schema(schema: str | None) -> None:
    """Refuse what can't be the name of a schema."""
    if schema is None:
        return
    # Lone surrogates can't be encoded; "replace" counts them, and the test for them is their own.
    size = len(schema.encode(errors="replace"))
    if not 1 <= size <= MAX_SCHEMA_BYTES or "\x00" in schema or not _is_unicode(schema):
        raise ConfigError(f"schema must be a name of 1 to {MAX_SCHEMA_BYTES} bytes, not {schema!r}.")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def place_of(url: str) -> tuple[str, str, str]:
    """The host, port and database that a connection string names: equal for two that name them in different ways."""
    if url in ("postgres://", "postgresql://"):
        return ("", "", "")
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    host = str(parts.get("host") or parts.get("hostaddr") or "").lower()
    name = str(parts.get("dbname") or parts.get("user") or "")
    return (host, str(parts.get("port") or "5432"), name)
