"""Claiming and completing 500 tasks again and again, by TaskLib's own statements on connections like a worker's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from benchmarks.growth.scene import Scene
from benchmarks.schema import BenchSchema
from tasklib import Config
from tasklib.db.connect import TASKS, connect
from tasklib.db.fast_path import exchange, in_text
from tasklib.db.query import Query
from tasklib.sql import numbered
from tasklib.store import claim, settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.settle import Completion
from tasklib.worker.slots import BATCH

T = TypeVar("T")
RESULT = '{"value":null}'
WARM_UP = 6
"""Statements are prepared at their second use, and planned for good after the fifth."""
Figures = dict[str, float | None]


@dataclass
class Cost:
    """What statements took."""

    seconds: float = 0.0
    server_ns: int = 0
    tasks: int = 0

    @property
    def server_us(self) -> float | None:
        """Per task. Unknown if there were few: then the statement costs what it costs, for nothing."""
        return self.server_ns / 1000 / self.tasks if self.tasks >= BATCH / 2 else None


class Session:
    """A worker's connection, and the CPU time of the process that serves it."""

    def __init__(self, config: Config, *, visible: bool) -> None:
        self.connection: psycopg.Connection = connect(config, role=TASKS)
        self._schema = config.schema
        self._pid = self.connection.info.backend_pid if visible else None

    def run(self, query: Query[T]) -> T:
        return self.connection.wait(exchange(self.connection, query, self._schema))

    def timed(self, query: Query[T]) -> tuple[T, Cost]:
        before, begun = self.server_ns(), time.perf_counter()
        answer = self.run(query)
        return answer, Cost(time.perf_counter() - begun, self.server_ns() - before)

    def server_ns(self) -> int:
        """Nanoseconds that the serving process has run so far; 0 if it can't be seen."""
        return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[0]) if self._pid else 0

    def plan(self, query: Query[Any]) -> dict[str, Any]:
        """What running it reads and writes. In whatever transaction this is: it does run."""
        text, names = numbered(query.name, self._schema)
        values = [in_text(query.parameters[name]) for name in names]
        given = [sql.Literal(None if value is None else value.decode()) for value in values]
        explain = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) EXECUTE explained ({})")
        self.connection.execute(f"PREPARE explained AS {text}".encode())
        row = self.connection.execute(explain.format(sql.SQL(", ").join(given))).fetchone()
        self.connection.execute("DEALLOCATE explained")
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        return plan


class Pair:
    """The two connections of a worker that matter here."""

    def __init__(self, config: Config, *, visible: bool) -> None:
        self.claiming = Session(config, visible=visible)
        self.settling = Session(config, visible=visible)
        self.terms = {
            "lease_seconds": config.lock_timeout_seconds,
            "medium_after": config.promote_to_medium_after_seconds,
            "high_after": config.promote_to_high_after_seconds,
        }

    def close(self) -> None:
        self.claiming.connection.close()
        self.settling.connection.close()

    def look(self, served: Served, limit: int) -> Query[list[Claimed]]:
        """The claim from the beginning."""
        return claim.claim(served, limit, "growth", **self.terms)

    def on(self, served: Served, claimed: Sequence[Claimed], limit: int) -> Query[list[Claimed]]:
        """The claim that goes on behind the last one."""
        return claim.claim(served, limit, "growth", {c.lane: c.place for c in claimed}, **self.terms)


def completion(claimed: list[Claimed]) -> Query[set[str]]:
    return settle.complete([Completion(c, RESULT) for c in sorted(claimed)], "growth")


def measure(schema: BenchSchema, scene: Scene, rounds: int) -> Figures:
    """The medians of so many rounds in this scene."""
    scene.set(schema)
    pair = Pair(schema.config, visible=schema.postmaster is not None)
    try:
        for _ in range(WARM_UP):
            _round(pair, scene, limit=20)
            scene.refill(schema, 40)
        measured = []
        for _ in range(rounds):
            measured.append(_round(pair, scene, BATCH))
            scene.refill(schema, 2 * BATCH)
        found = medians(measured)
        return found | _together(found) | _read_and_written(pair, scene)
    finally:
        pair.close()


def _round(pair: Pair, scene: Scene, limit: int) -> Figures:
    claimed, look = pair.claiming.timed(pair.look(scene.served, limit))
    assert len(claimed) == limit, f"{len(claimed)} of {limit} tasks at {scene.dimension} {scene.label}"
    ours, done = pair.settling.timed(completion(claimed))
    assert len(ours) == limit
    more, on = pair.claiming.timed(pair.on(scene.served, claimed, limit))
    if more:
        pair.settling.run(completion(more))
    look.tasks, done.tasks, on.tasks = limit, limit, len(more)
    return {
        "claim_us": look.server_us,
        "going_on_us": on.server_us,
        "complete_us": done.server_us,
        "claim_ms": 1000 * look.seconds,
        "going_on_ms": 1000 * on.seconds,
        "complete_ms": 1000 * done.seconds,
    }


def medians(measured: Sequence[Figures]) -> Figures:
    """Of each figure, where it is known."""
    found: Figures = {}
    for name in measured[0]:
        known = [value for figures in measured if (value := figures[name])]
        found[name] = median(known) if known else None
    return found


def _together(figures: Figures) -> Figures:
    claiming, completing = figures["claim_us"], figures["complete_us"]
    return {"server_us": claiming + completing if claiming and completing else None}


def _read_and_written(pair: Pair, scene: Scene) -> Figures:
    """Pages and WAL, from a claim and a completion that are rolled back.

    Of the second try: the first also writes each page as a whole, as it is after a checkpoint, once.
    """
    settling = pair.settling
    for _ in range(2):
        with pair.claiming.connection.transaction(force_rollback=True):
            claiming = pair.claiming.plan(pair.look(scene.served, BATCH))
        with settling.connection.transaction(force_rollback=True):
            claimed = settling.run(pair.look(scene.served, BATCH))
            table_pages = _pages_of_running(settling.connection)
            completing = settling.plan(completion(claimed))
    return {
        "claim_pages": _pages(claiming),
        "complete_pages": _pages(completing),
        "table_pages": table_pages,
        "wal_bytes": (claiming["WAL Bytes"] + completing["WAL Bytes"]) / BATCH,
        "wal_page_images": claiming.get("WAL FPI", 0) + completing.get("WAL FPI", 0),
    }


def _pages_of_running(connection: psycopg.Connection) -> int:
    """On how many pages of the table the claimed rows lie."""
    row = connection.execute("SELECT count(DISTINCT (ctid::text::point)[0]) FROM tasks WHERE state = 'running'")
    return int(row.fetchall()[0][0])


def _pages(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
