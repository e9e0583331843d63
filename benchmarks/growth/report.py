"""The figures as a table, line by line as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.growth.dimensions import TITLES

COLUMNS = {
    "server_us": ("server µs", "{:.2f}"),
    "claim_us": ("claim µs", "{:.2f}"),
    "going_on_us": ("goes on µs", "{:.2f}"),
    "complete_us": ("complete µs", "{:.2f}"),
    "claim_ms": ("claim ms", "{:.2f}"),
    "claim_pages": ("claim pages", "{:,.0f}"),
    "complete_pages": ("compl. pages", "{:,.0f}"),
    "table_pages": ("rows' pages", "{:,.0f}"),
    "wal_bytes": ("WAL bytes", "{:,.0f}"),
}
OF_A_CROWD = {
    "tasks_s": ("tasks/s", "{:,.0f}"),
    "server_us": ("server µs", "{:.2f}"),
    "claim_ms": ("claim ms", "{:.2f}"),
}
LEGEND = """\
Medians. µs: CPU time of the server's processes per task. server: claim and completion of 500 tasks together; claim:
from the beginning of all lanes; goes on: behind the last claim, as a busy worker does between two looks (-: there the
lanes are empty after one claim). claim ms: one claim of 500, as its caller sees it. Pages: of one claim and one
completion of 500, each as often as it was looked at; rows' pages: on how many of the table's the 500 rows lie. WAL
bytes: per task, without the images of whole pages that follow a checkpoint."""


def head(dimension: str) -> str:
    titles = "".join(f"{title:>14}" for title, _ in _columns(dimension).values())
    return f"\n{TITLES[dimension]}\n{'':>12}{titles}"


def line(record: Mapping[str, Any]) -> str:
    figures = [_said(record.get(name), form) for name, (_, form) in _columns(record["dimension"]).items()]
    return f"{record['label']:>12}" + "".join(f"{figure:>14}" for figure in figures)


def _columns(dimension: str) -> dict[str, tuple[str, str]]:
    return OF_A_CROWD if dimension == "workers" else COLUMNS


def _said(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
