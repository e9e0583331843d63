"""Reading a batch of results of which some can't be read: the others must not suffer for them.

A result may be nested too deep, have an integer of thousands of digits, or text that is not UTF-8. Such a batch is
taken apart at its brackets and commas, and each result is read by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any
from uuid import UUID

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from tasklib.server.limits import STEPS, STRINGS, is_deeper
from tasklib.server.problems import Problem

_BATCH = re.compile(rb'\s*\{\s*"results"\s*:\s*\[')
_COMMA = re.compile(rb",")
_TASK_ID = re.compile(rb'"task_id"\s*:\s*"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"')


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands in the batch for a result that can't be read."""

    task_id: UUID | None
    """If at least that could be read."""
    reason: str


class LenientRoute(APIRoute):
    """A route for batches: the JSON of a request has an Unreadable for each result that can't be read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_leniently(request: Request) -> Response:
            if body := await request.body():
                # Here json() keeps what it has read.
                request._json = _parsed(body, request.app.state.services.settings.max_depth)
            return await handle(request)

        return handle_leniently


def _parsed(body: bytes, most: int) -> Any:
    is_too_deep = is_deeper(body, most)
    try:
        if not is_too_deep:
            return json.loads(body)
    except ValueError:  # not JSON, not UTF-8, or too many digits
        pass
    if (items := _items(body)) is not None:
        return {"results": [_read(item, most) for item in items]}
    if is_too_deep:
        raise Problem(422, "too_deep", "The JSON is nested too deep", f"It may be {most} levels deep.")
    raise Problem(400, "invalid_json", "The body is not JSON", "The body can't be read as JSON.")


def _items(body: bytes) -> list[bytes] | None:
    """The results of a batch, each as its text; None if this is no batch, or one without an end."""
    if not (beginning := _BATCH.match(body)):
        return None
    structure, depths = _structure(body)
    first = beginning.end()
    try:
        last = depths.index(1, first)
    except ValueError:
        return None
    commas = [m.start() for m in _COMMA.finditer(structure, first, last) if depths[m.start()] == 2]
    edges = [first - 1, *commas, last]
    return [body[a + 1 : b] for a, b in pairwise(edges)]


def _structure(text: bytes) -> tuple[bytes, list[int]]:
    """JSON with blanks in place of its strings, and how deep each byte of it is nested."""
    structure = STRINGS.sub(lambda string: b" " * len(string[0]), text)
    return structure, list(accumulate(map(STEPS.__getitem__, structure)))


def _read(text: bytes, most: int) -> Any:
    if is_deeper(text, most - 2):  # the batch itself is two levels
        return Unreadable(_task_id(text), f"it is nested deeper than {most} levels")
    try:
        return json.loads(text)
    except UnicodeDecodeError:
        return Unreadable(_task_id(text), "it is not UTF-8")
    except json.JSONDecodeError as e:
        return Unreadable(_task_id(text), f"it is not JSON ({e.msg})")
    except ValueError:
        return Unreadable(_task_id(text), "it has an integer of too many digits")


def _task_id(text: bytes) -> UUID | None:
    """What the object itself says, and nothing that is nested in it."""
    _, depths = _structure(text)
    shallow = bytes(byte for byte, depth in zip(text, depths, strict=True) if depth == 1)
    found = _TASK_ID.search(shallow)
    return UUID(found[1].decode()) if found else None
