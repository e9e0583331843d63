"""Play every order, and judge each: `make interleavings`."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import psycopg

from proof.history import recording
from proof.history.checker import Checker, End, Violation
from proof.history.recording import Transition
from proof.interleavings import durable, joins, limits, schedules, spawning
from proof.interleavings.durable import DurableTable
from proof.interleavings.joins import FailedJoinTable, JoinTable
from proof.interleavings.limits import LimitTable
from proof.interleavings.operations import CRASH_LIMIT, LEADER, NAME, OPERATIONS, STATES, TOKEN
from proof.interleavings.schedules import ScheduleTable
from proof.interleavings.spawning import SpawnTable
from proof.interleavings.stepping import Session, orders, play
from tasklib.states import TERMINAL
from tasklib.testing import databases

RESULTS = Path(__file__).parents[1] / "results" / "interleavings.json"
PAIRS = [*itertools.combinations_with_replacement([*OPERATIONS, "expire"], 2)]
TRIPLES = [*itertools.combinations([d for d in (*OPERATIONS, "expire") if d not in ("stop", "late rescue")], 3)]


@dataclass
class Stat:
    """How much was played, and what was wrong."""

    orders: int = 0
    wrong: list[str] = field(default_factory=list)


class Table:
    """One database on which orders are played, each on a task of its own."""

    def __init__(self, url: str) -> None:
        self._stack = ExitStack()
        self.db = self._stack.enter_context(psycopg.connect(url, autocommit=True))
        recording.install(self.db)
        self.db.execute(
            "INSERT INTO leadership (holder, term, expires_at) VALUES (%s, %s, now() + interval '1 day')",
            (LEADER.holder, LEADER.number),
        )
        self._sessions = [self._stack.enter_context(closing(Session(url, self.db))) for _ in range(3)]
        named = (Session(url, self.db, "tasklib worker schedules") for _ in range(3))
        sessions = [self._stack.enter_context(closing(session)) for session in named]
        self.schedules = ScheduleTable(self.db, sessions)
        self.durable = DurableTable(self.db, sessions)
        self.spawning = SpawnTable(self.db, sessions)
        self.limits = LimitTable(self.db, sessions)
        self.joins, self.failed_joins = JoinTable(self.db, sessions), FailedJoinTable(self.db, sessions)

    def close(self) -> None:
        self._stack.close()

    def play_all(self, groups: Iterable[tuple[str, ...]], states: Iterable[str], stat: Stat) -> None:
        for operations, state in itertools.product(groups, states):
            for order in orders(len(operations)):
                stat.orders += 1
                for violation in self.play(operations, state, order):
                    stat.wrong.append(f"{' | '.join(operations)} from {state} in {order}: {violation}")

    def play(self, operations: tuple[str, ...], state: str, order: tuple[int, ...]) -> Iterator[str]:
        """Play one order from one state, and say what is wrong with the outcome."""
        task = self._task(state)
        sessions = self._sessions[: len(operations)]
        play(sessions, operations, order, task)
        moves = self._moves(task)
        for operation, session in zip(operations, sessions, strict=True):
            if session.error is not None:
                yield f"{operation} failed: {session.error}"
            if operation in OPERATIONS and not OPERATIONS[operation].is_legitimate and session.answer:
                yield f"{operation} was accepted: {session.answer}"
        yield from (f"{v.invariant}: {v.detail}" for v in self._judge(task, state, moves))
        yield from _answers(operations, sessions, moves)

    def _task(self, state: str) -> UUID:
        self.db.execute("DELETE FROM tasks")
        # Not TRUNCATE: it would lock out the other sessions' catalogue look-ups for longer than a delete takes.
        row = self.db.execute("INSERT INTO tasks (name, max_retries) VALUES (%s, 3) RETURNING id", (NAME,)).fetchone()
        assert row is not None
        self.db.execute(f"UPDATE tasks SET {STATES[state]} WHERE id = %s".encode(), (row[0],))
        self.db.execute("DELETE FROM transitions")
        task: UUID = row[0]
        return task

    def _moves(self, task: UUID) -> list[Transition]:
        return [move for move in recording.transitions(self.db) if move.task == str(task)]

    def _judge(self, task: UUID, state: str, moves: list[Transition]) -> Iterator[Violation]:
        if not moves:
            return
        replays = self.db.execute(
            "SELECT count(*) FROM audit WHERE action = 'task.replay' AND target = %s", (str(task),)
        ).fetchone()
        assert replays is not None
        # The history begins in the middle of a life: what came before is as the state says.
        first = moves[0]._replace(
            old_state=None,
            old_token=None,
            new_state=moves[0].old_state,
            new_token=moves[0].old_token,
            retry_count=1 if state == "failed" else 0,
            crash_count=0,
            wrote_token=None,
        )
        # Nothing here says that its function runs, so that a beginning on record is all there is to see.
        end = End(replays=Counter({str(task): replays[0]}), at_most_once=frozenset({str(task)}))
        verdict = Checker(crash_limit=CRASH_LIMIT).check([first, *moves], [], [], end)
        # A life that began in the middle need not have ended, but for that all has to hold.
        yield from (v for v in verdict.violations if v.invariant != "I1")


def _answers(operations: tuple[str, ...], sessions: list[Session], moves: list[Transition]) -> Iterator[str]:
    """There are as many endings as sessions that were told that theirs was stored."""
    said = sum(bool(s.answer) for d, s in zip(operations, sessions, strict=True) if d in ("complete", "stop"))
    made = sum(m.new_state in TERMINAL and m.old_state == "running" for m in moves if "maintenance" not in m.by)
    if said > made:
        yield f"{said} endings were acknowledged and {made} made"
    begun = any(s.answer for d, s in zip(operations, sessions, strict=True) if d == "begin")
    if begun and any(m.old_token == TOKEN and m.new_state in ("pending", "failed") for m in moves if not _replay(m)):
        yield "a task that runs at most once had begun, and was not given up"


def _replay(move: Transition) -> bool:
    return move.old_state in TERMINAL


@contextmanager
def table() -> Iterator[Table]:
    """A table on a database of its own."""
    with (
        databases.server() as server,
        databases.template(server) as template,
        databases.database(server, template) as url,
        closing(Table(url)) as made,
    ):
        yield made


def main() -> None:
    two, three = Stat(), Stat()
    with table() as made:
        made.play_all(PAIRS, STATES, two)
        print(f"two sessions: {two.orders:,} orders, {len(two.wrong)} wrong", flush=True)
        made.play_all(TRIPLES, STATES, three)
        groups = [*schedules.PAIRS, *schedules.TRIPLES]
        about_schedules = [wrong for group in groups for wrong in made.schedules.play_all(group)]
        durable_groups = [*durable.PAIRS, *durable.TRIPLES]
        about_durable = [wrong for group in durable_groups for wrong in made.durable.play_all(group)]
        spawn_groups = [*spawning.PAIRS, *spawning.TRIPLES]
        about_spawning = [wrong for group in spawn_groups for wrong in made.spawning.play_all(group)]
        limit_groups = [*limits.PAIRS, *limits.TRIPLES]
        about_limits = [wrong for group in limit_groups for wrong in made.limits.play_all(group)]
        join_groups = [*joins.PAIRS, *joins.TRIPLES]
        failed_groups = [*joins.PAIRS, *joins.FAILED_TRIPLES]
        about_joins = [wrong for group in join_groups for wrong in made.joins.play_all(group)]
        about_joins += [wrong for group in failed_groups for wrong in made.failed_joins.play_all(group)]
    wrong = two.wrong + three.wrong + about_schedules + about_durable + about_spawning + about_limits + about_joins
    for order in wrong[:50]:
        print(order)
    print(f"three sessions: {three.orders:,} orders, {len(three.wrong)} wrong")
    print(f"schedules: {len(groups)} groups of sessions in every order, {len(about_schedules)} wrong")
    print(f"durable tasks: {len(durable_groups)} groups of sessions in every order, {len(about_durable)} wrong")
    print(f"spawning: {len(spawn_groups)} groups of sessions in every order, {len(about_spawning)} wrong")
    print(f"limits: {len(limit_groups)} groups of sessions in every order, {len(about_limits)} wrong")
    print(f"joins: {len(join_groups + failed_groups)} groups of sessions in every order, {len(about_joins)} wrong")
    RESULTS.write_text(
        json.dumps({"two sessions": two.orders, "three sessions": three.orders, "wrong": len(wrong)}, indent=2) + "\n"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
