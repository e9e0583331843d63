"""Write the tables of docs/explanation/scale.md from the results: `python -m benchmarks.simulation page`.

A table lies between `<!-- generated: name -->` and `<!-- generated: end -->`; the rest is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.simulation.costs import kept

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "scale.md"
_PART = re.compile(r"<!-- generated: (\w+) -->\n.*?<!-- generated: end -->", re.S)
_FIGURES = {
    "server_us": "server CPU per task, µs",
    "connections": "connections",
    "tasks_s": "tasks per second",
    "tasks_per_claim": "tasks per claim",
    "claim_ms": "claim, p50 ms",
    "wait_ms": "submission to start, p50 ms",
}


def with_tables(text: str) -> str:
    """The page with its tables anew."""
    found = kept()
    makers = {
        "costs": _costs,
        "checked": _checked,
        "one_server": _one_server,
        "nodes": _nodes,
        "first": _first,
        "recovery": _recovery,
        "rescue": _rescue,
    }
    return _PART.sub(
        lambda match: f"<!-- generated: {match[1]} -->\n{makers[match[1]](found)}\n<!-- generated: end -->", text
    )


def write() -> None:
    PAGE.write_text(with_tables(PAGE.read_text()))


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])


def _short(value: float | None) -> str:
    """Two or three digits, as people read them."""
    if value is None or value != value:
        return ""
    rounded = float(f"{value:.2g}") if abs(value) < 10_000 else float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:g}"


def _costs(found: dict[str, Any]) -> str:
    costs = found["measured"]["costs"]
    us = {name: 1e6 * value for name, value in costs.items() if isinstance(value, float)}

    def line(name: str) -> str:
        fixed, each = costs[name]
        return f"{_short(1e6 * fixed)} + {_short(1e6 * each)} n"

    rows = [
        ["a claim of n tasks", line("claim")],
        ["n results", line("complete")],
        ["a submission; in a large batch", f"{_short(us['submit_one'])}; {_short(us['submit_many'])} for each task"],
        ["waking one of n sleeping workers: choosing it", line("sleepers")],
        ["and NOTIFY, with n sessions that listen in the database", line("listeners")],
        [
            "a heartbeat, a look at the lead, a poll",
            ", ".join(_short(us[n]) for n in ("heartbeat", "election", "poll")),
        ],
        ["each of these more on a session that has slept", _short(us["cold"])],
        ["the leader: n workers looked at; n reported rows added up", f"{line('bury')}; {line('fold')}"],
        ["500 tasks taken from workers that are dead, which hold n", line("rescue")],
        ["a finished task deleted", _short(us["retain"])],
        ["the worker's part of a statement and its n tasks", line("worker_task")],
        ["an idle worker, per second and shard", _short(us["worker_idle"])],
        ["the shard of a key found among n, in a producer", line("place_key")],
    ]
    return _table(["", "µs of one core"], rows)


def _checked(found: dict[str, Any]) -> str:
    rows = []
    for fleet, figures in found["checked"]["fleets"].items():
        for name, figure in figures.items():
            if name in _FIGURES and figure["error"] is not None:
                error = f"{figure['error']:+.0%}"
                measured, predicted = _short(figure["measured"]), _short(figure["predicted"])
                rows.append([fleet, _FIGURES[name], measured, predicted, error])
    return _table(["fleet", "figure", "measured", "model", "error"], rows)


def _one_server(found: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['workers']:,}",
            f"{row['connections']:,}",
            *(
                f"{_short(row[f'{who}_wait_p50_ms'])} / {_short(row[f'{who}_wait_p99_ms'])}"
                for who in ("all", "some", "none")
            ),
            *(_short(row[f"{who}_cores"]) for who in ("all", "some", "none")),
        ]
        for row in found["predicted"]["one_server"]
    ]
    head = [
        "workers",
        "connections",
        "all listen: wait p50 / p99, ms",
        "20 listen",
        "none",
        "server cores: all",
        "20",
        "none",
    ]
    return _table(head, rows)


def _nodes(found: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['nodes']:,}",
            _short(row["plain_tasks_s"]),
            row["plain_first"],
            _short(row["tasks_s"]),
            f"{row['workers']:,}",
            _short(row["connections"]),
            row["first"],
            f"{_short(row['wait_p50_ms'])} / {_short(row['wait_p99_ms'])}",
        ]
        for row in found["predicted"]["nodes"]
    ]
    head = ["servers", "as it comes: tasks/s", "bound", "as recommended: tasks/s", "workers", "connections per server"]
    return _table([*head, "bound", "wait at half the rate, p50 / p99, ms"], rows)


def _first(found: dict[str, Any]) -> str:
    rows = []
    for row in found["predicted"]["first"]:
        for name, said in (("plain", "as it comes"), ("recommended", "as recommended")):
            most = ", ".join(f"{what} {_short(100 * share)}%" for what, share in row[name][:4])
            rows.append([_short(row["rate"]), f"{row['shards']:,}", f"{row['workers']:,}", said, most])
    return _table(["tasks/s", "servers", "workers", "", "used, of each the share that is there"], rows)


def _recovery(found: dict[str, Any]) -> str:
    rows = [
        [f"{row['killed']} of {row['of']}", f"{row['lost']:,}", _short(row["seconds"])]
        for row in found["predicted"]["recovery"]
    ]
    return _table(["workers lost", "tasks they held", "seconds until the last of these waits again"], rows)


def _rescue(found: dict[str, Any]) -> str:
    rows = [
        [f"{row['lost']:,}", _short(row["equal_seconds"]), _short(row["growing_seconds"])]
        for row in found["predicted"]["rescue"]
    ]
    return _table(["tasks of lost workers", "in batches of 500, seconds", "in growing batches, seconds"], rows)
