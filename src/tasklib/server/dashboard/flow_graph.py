"""A flow as a drawing: nodes in layers from left to right, and curves between them. A template makes SVG of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasklib.client.flows import FlowDetails
from tasklib.formatting import count
from tasklib.server.dashboard.filters import shortened
from tasklib.store.flows import GateInfo, NodeInfo

WIDTH, HEIGHT = 184, 56
"""Of a node."""
BETWEEN_LAYERS, BETWEEN_NODES, MARGIN = 60, 18, 8
MOST_DRAWN = 200
"""Nodes; a flow with more is drawn up to here, and listed below."""
_BAR = WIDTH - 24
STATES = ("completed", "running", "failed", "pending", "cancelled", "dead_letter")
"""In the order of a bar."""
_TELLING = ("dead_letter", "cancelled", "failed", "running", "pending", "completed")
"""The first of these that one of its tasks has colours a node."""


@dataclass(frozen=True, slots=True)
class DrawnBar:
    """Tasks in one state, as a piece of a node's bar."""

    state: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node: a box with its name, what becomes of its tasks, and a bar of their states."""

    full_name: str
    name: str
    x: int
    y: int
    state: str
    label: str
    policy: str
    """What it waits for, if that is not that all complete."""
    says: str
    """All of it, for those who don't see it."""
    is_group: bool
    waits: bool
    bars: tuple[DrawnBar, ...]


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """A curve from a node, or from where several meet, to another."""

    path: str
    kind: str
    """`open`, `failed` or `waiting`."""
    is_optional: bool


@dataclass(frozen=True, slots=True)
class FlowDrawing:
    """The whole picture."""

    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    joints: list[tuple[int, int, str]]
    """Where edges of a gate with several nodes on both sides meet: x, y and the kind."""
    width: int
    height: int
    left_out: int
    """Nodes beyond what is drawn."""


def drawing(details: FlowDetails) -> FlowDrawing:
    """Lay a flow out."""
    nodes = {node.name: node for node in details.nodes[:MOST_DRAWN]}
    gates = [gate for gate in details.gates if any(n in nodes for n in gate.nodes)]
    parents: dict[str, list[str]] = {name: [] for name in nodes}
    waits_at: dict[str, GateInfo] = {}
    for gate in details.gates:
        for waiter in gate.waiters:
            if waiter in nodes:
                parents[waiter] += [n for n in gate.nodes if n in nodes]
                waits_at[waiter] = gate
    layers = _ordered(_layers(parents), parents)
    tallest = max(map(len, layers), default=0)
    height = MARGIN * 2 + tallest * (HEIGHT + BETWEEN_NODES) - (BETWEEN_NODES if tallest else 0)
    places: dict[str, tuple[int, int]] = {}
    for column, names in enumerate(layers):
        top = (height - len(names) * (HEIGHT + BETWEEN_NODES) + BETWEEN_NODES) // 2
        for row, name in enumerate(names):
            places[name] = (MARGIN + column * (WIDTH + BETWEEN_LAYERS), top + row * (HEIGHT + BETWEEN_NODES))
    edges, joints = _edges(gates, places)
    return FlowDrawing(
        [_drawn(node, places[name], waits_at.get(name)) for name, node in nodes.items()],
        edges,
        joints,
        MARGIN * 2 + len(layers) * (WIDTH + BETWEEN_LAYERS) - BETWEEN_LAYERS if layers else 0,
        height,
        len(details.nodes) - len(nodes),
    )


def _layers(parents: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Each node one layer behind the last that it waits for. Rows made by hand may have cycles: then where it stops."""
    waiting = {name: set(before) - {name} for name, before in parents.items()}
    layers: list[list[str]] = []
    while waiting:
        ready = [name for name, before in waiting.items() if not before] or list(waiting)
        layers.append(ready)
        for name in ready:
            del waiting[name]
        for before in waiting.values():
            before.difference_update(ready)
    return layers


def _ordered(layers: list[list[str]], parents: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Nodes near those that they wait for, so that few curves cross."""
    for number, names in enumerate(layers[1:], 1):
        above = {name: row for earlier in layers[:number] for row, name in enumerate(earlier)}
        names.sort(key=lambda name: _mean([above[p] for p in parents[name] if p in above]))
    return layers


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _edges(
    gates: Sequence[GateInfo], places: Mapping[str, tuple[int, int]]
) -> tuple[list[DrawnEdge], list[tuple[int, int, str]]]:
    edges: list[DrawnEdge] = []
    joints: list[tuple[int, int, str]] = []
    for gate in gates:
        before = [n for n in gate.nodes if n in places]
        after = [n for n in gate.waiters if n in places]
        kind = "open" if gate.opened_at else "failed" if gate.failed_at else "waiting"
        optional = frozenset(gate.policy.get("optional", ()))
        if len(before) > 1 and len(after) > 1:
            # Not each with each: ten thousand curves for a hundred nodes on each side.
            x = min(places[n][0] for n in after) - BETWEEN_LAYERS // 2
            y = round(_mean([places[n][1] for n in [*before, *after]])) + HEIGHT // 2
            joints.append((x, y, kind))
            edges += [DrawnEdge(_curve(*_out(places[n]), x, y), kind, n in optional) for n in before]
            edges += [DrawnEdge(_curve(x, y, *_in(places[n])), kind, False) for n in after]
        else:
            edges += [
                DrawnEdge(_curve(*_out(places[b]), *_in(places[a])), kind, b in optional) for a in after for b in before
            ]
    return edges, joints


def _out(place: tuple[int, int]) -> tuple[int, int]:
    return place[0] + WIDTH, place[1] + HEIGHT // 2


def _in(place: tuple[int, int]) -> tuple[int, int]:
    return place[0], place[1] + HEIGHT // 2


def _curve(x1: int, y1: int, x2: int, y2: int) -> str:
    reach = max(24, abs(x2 - x1) // 2)
    return f"M{x1} {y1}C{x1 + reach} {y1} {x2 - reach} {y2} {x2} {y2}"


def _drawn(node: NodeInfo, place: tuple[int, int], gate: GateInfo | None) -> DrawnNode:
    states = [state for state in STATES if node.states.get(state)]
    is_group = node.count > 1
    waits = gate is not None and gate.opened_at is None and gate.failed_at is None
    label = f"{node.states.get('completed', 0):,} of {node.count:,}" if is_group else _said(states[0]) if states else ""
    if waits and not is_group:
        label = "waits"
    policy = "" if gate is None else policy_words(gate.policy)
    said = ", ".join(f"{node.states[state]:,} {_said(state)}" for state in states)
    return DrawnNode(
        full_name=node.name,
        name=shortened(node.name, 28),
        x=place[0],
        y=place[1],
        state=next((state for state in _TELLING if node.states.get(state)), "pending"),
        label=label,
        policy=policy,
        says=f"{shortened(node.name, 120)}: {count(node.count, 'task')}, {said}{'; waits for ' if waits else ''}"
        + (_some([shortened(n, 60) for n in gate.nodes]) if waits and gate else ""),
        is_group=is_group,
        waits=waits,
        bars=_bars(node),
    )


def _bars(node: NodeInfo) -> tuple[DrawnBar, ...]:
    bars, x = [], 12.0
    for state in STATES:
        if number := node.states.get(state, 0):
            width = _BAR * number / node.count
            bars.append(DrawnBar(state, round(x, 2), round(max(width, 1.0), 2)))
            x += width
    return tuple(bars)


def policy_words(policy: Mapping[str, object]) -> str:
    """What a gate needs to open, if it is not that all complete."""
    match policy:
        case {"kind": "settled"}:
            return "after all ended"
        case {"kind": "at_least", "share": int() | float() as share}:
            return f"at least {share:.0%}"
        case {"kind": "at_least", "count": int() as number}:
            return f"at least {number:,}"
    return ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _said(state: str) -> str:
    return state.replace("_", " ")
