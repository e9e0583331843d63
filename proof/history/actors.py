"""The actors' accounts: a line of JSON for each thing asked for and each answer.

{"actor": "submitter-0", "at": 1731.5, "op": "submit", "what": "invoke", "call": 7, "tasks": ["..."]}
{"actor": "submitter-0", "at": 1731.6, "op": "submit", "what": "ok", "call": 7}

`ok`: it was acknowledged. `fail`: it was refused and can't have happened. `unknown`: the answer was lost.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any


class ActorLog:
    """Appends to a file in one write per line: a killed actor leaves whole lines."""

    def __init__(self, directory: Path, actor: str) -> None:
        self._actor = actor
        self._file = os.open(directory / f"{actor}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._calls = count()

    def invoke(self, op: str, **facts: Any) -> int:
        call = next(self._calls)
        self.write(op=op, what="invoke", call=call, pid=os.getpid(), **facts)
        return call

    def answer(self, op: str, call: int, what: str, **facts: Any) -> None:
        self.write(op=op, what=what, call=call, pid=os.getpid(), **facts)

    def write(self, **facts: Any) -> None:
        line = json.dumps({"actor": self._actor, "at": time.time(), **facts}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def read(directory: Path) -> Iterator[dict[str, Any]]:
    """Every line of every actor; a last line that was cut short is no line."""
    for path in sorted(directory.glob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield json.loads(line)
