"""All systems, by name."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.peers.ours import OURS
from benchmarks.peers.peers_on_postgresql import ON_POSTGRESQL
from benchmarks.peers.peers_on_redis import ON_REDIS
from benchmarks.peers.systems import System

SYSTEMS: dict[str, System] = {system.name: system for system in (*OURS, *ON_POSTGRESQL, *ON_REDIS)}


def chosen(names: Iterable[str]) -> list[System]:
    """The systems of these names, in the order of the catalogue; all of them for no names."""
    wanted = set(names)
    if unknown := wanted - SYSTEMS.keys():
        raise SystemExit(f"no system named {', '.join(sorted(unknown))}. There are: {', '.join(SYSTEMS)}.")
    return [system for system in SYSTEMS.values() if not wanted or system.name in wanted]
