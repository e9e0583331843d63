"""Arrays as the text PostgreSQL reads: a driver that takes lists looks at each element several times."""

from __future__ import annotations

from collections.abc import Iterable


def array(values: Iterable[str]) -> str:
    """An array of texts as PostgreSQL reads it."""
    quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return '{"' + '","'.join(quoted) + '"}' if quoted else "{}"


def plain_array(values: Iterable[object]) -> str:
    """An array of ids or numbers: nothing in them needs quoting."""
    return "{" + ",".join(map(str, values)) + "}"
