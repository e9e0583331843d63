"""What grows, and how far."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Sequence

from benchmarks.growth.scene import ALL, Scene
from benchmarks.schema import NAME
from tasklib.store.claim import Served

LARGEST_PAYLOAD = 64_000
TITLES = {
    "backlog": "pending tasks",
    "history": "finished tasks in the table",
    "priorities": "priorities in use",
    "queues": "queues, all served",
    "other_queues": "queues, one of them served",
    "capabilities": "sets of capabilities, all served",
    "other_capabilities": "sets of capabilities, one of them served",
    "payload": "bytes of arguments per task",
    "workers": "workers at once",
}


def backlog(quick: bool) -> Iterator[Scene]:
    for at in (1_000, 2_000) if quick else (1_000, 10_000, 100_000, 1_000_000, 5_000_000):
        yield Scene("backlog", at, f"{at:,}", pending=at, grows=at > 1_000)


def history(quick: bool) -> Iterator[Scene]:
    for at in (0, 2_000) if quick else (0, 100_000, 1_000_000, 10_000_000):
        yield Scene("history", at, f"{at:,}", finished=at, pending=1_000 if quick else 20_000, grows=at > 0)


def priorities(quick: bool) -> Iterator[Scene]:
    """From the highest down, so that at one there is what there is at many."""
    yield from _lanes(
        "priorities", (1, 3) if quick else (1, 3, 10, 30, 111), lambda at: {"priority": f"100 - n % {at}"}
    )


def queues(quick: bool) -> Iterator[Scene]:
    yield from _lanes("queues", _up_to(1_000, quick), _in_queues)


def other_queues(quick: bool) -> Iterator[Scene]:
    ours = Served([NAME], queues=["queue 0"])
    yield from _lanes("other_queues", _up_to(1_000, quick), _in_queues, served=ours, claimed={"queue": "'queue 0'"})


def capabilities(quick: bool) -> Iterator[Scene]:
    every = Served([NAME], capabilities=[f"set {number}" for number in range(100)])
    yield from _lanes("capabilities", _up_to(100, quick), _needing, served=every)


def other_capabilities(quick: bool) -> Iterator[Scene]:
    ours = Served([NAME], capabilities=["set 0"])
    claimed = {"required_capabilities": "ARRAY['set 0']"}
    yield from _lanes("other_capabilities", _up_to(100, quick), _needing, served=ours, claimed=claimed)


def payload(quick: bool) -> Iterator[Scene]:
    """Text that can't be compressed, a different piece of it in each row."""
    chance = random.Random(1)
    text = "".join(chance.choices(string.ascii_letters + string.digits + "+/", k=2 * LARGEST_PAYLOAD))
    for at in (0, 100) if quick else (0, 100, 1_000, 4_000, 16_000, LARGEST_PAYLOAD):
        piece = f"substr(%(text)s, (1 + n * 7919 %% {LARGEST_PAYLOAD})::int, {at})"
        columns = {"kwargs": f"jsonb_build_object('data', {piece})" if at else "'{}'"}
        yield Scene("payload", at, f"{at:,}", pending=2_000, columns=columns, parameters={"text": text})


DIMENSIONS: dict[str, Callable[[bool], Iterator[Scene]]] = {
    "backlog": backlog,
    "history": history,
    "priorities": priorities,
    "queues": queues,
    "other_queues": other_queues,
    "capabilities": capabilities,
    "other_capabilities": other_capabilities,
    "payload": payload,
}
WORKERS = (1, 2, 4, 8, 16, 32, 64)


def _lanes(
    dimension: str,
    counts: Sequence[int],
    columns: Callable[[int], dict[str, str]],
    *,
    served: Served = ALL,
    claimed: dict[str, str] | None = None,
) -> Iterator[Scene]:
    """The same number of tasks, in more and more lanes."""
    for at in counts:
        pending = 2_000 if counts[-1] < 10 else 50_000
        yield Scene(dimension, at, f"{at:,}", pending, columns(at), claimed, served)


def _up_to(most: int, quick: bool) -> Sequence[int]:
    return (1, 3) if quick else [at for at in (1, 3, 10, 30, 100, 300, 1_000) if at <= most]


def _in_queues(at: int) -> dict[str, str]:
    return {"queue": f"'queue ' || n % {at}"}


def _needing(at: int) -> dict[str, str]:
    return {"required_capabilities": f"ARRAY['set ' || n % {at}]"}
