"""Style sheet, scripts and icon, out of the package. Their addresses hold a hash, so browsers keep them for good."""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Depends, Response
from starlette.exceptions import HTTPException

from tasklib.server.access import anybody

_FOLDER = files("tasklib.server.dashboard") / "assets"
_SERVED = (
    "charts.css",
    "charts.js",
    "dashboard.css",
    "dashboard.js",
    "failures.css",
    "flows.css",
    "limits.css",
    "schedules.css",
    "suggest.js",
    "task.js",
    "tasks.css",
    "tasks.js",
    "theme.js",
    "icon.svg",
    "icon-critical.svg",
    "icon-warning.svg",
    "palette.js",
    "vendor/htmx.min.js",
)
_FOR_GOOD = "public, max-age=31536000, immutable"

router = APIRouter(dependencies=[Depends(anybody)], include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that browsers may have."""

    content: bytes
    kind: str
    hash: str


@functools.cache
def assets() -> dict[str, Asset]:
    """All of them by name, read once."""
    return {name: _read(name) for name in _SERVED}


def path_of(name: str) -> str:
    """Where a page finds an asset."""
    return f"/assets/{assets()[name].hash}/{name}"


@router.get("/assets/{hash_}/{name:path}")
async def asset(hash_: str, name: str) -> Response:
    """An old page may still ask by an old hash, during a deployment: it gets the new file, and doesn't keep it."""
    found = assets().get(name)
    if found is None:
        raise HTTPException(404)
    caching = _FOR_GOOD if hash_ == found.hash else "no-store"
    return Response(found.content, media_type=found.kind, headers={"Cache-Control": caching})


def _read(name: str) -> Asset:
    content = _FOLDER.joinpath(name).read_bytes()
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Asset(content, kind, hashlib.sha256(content).hexdigest()[:16])
