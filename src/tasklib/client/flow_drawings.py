"""A flow as text that Mermaid or Graphviz draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasklib.formatting import printable

if TYPE_CHECKING:
    from tasklib.client.flows import FlowDetails
    from tasklib.store.flows import NodeInfo

_COLOURS = {
    "dead_letter": "#f8b4b4",
    "cancelled": "#e5e7eb",
    "running": "#bfdbfe",
    "failed": "#fde68a",
    "pending": "#ffffff",
    "completed": "#bbf7d0",
}
"""The first state that one of its tasks is in colours a node."""


def drawn(details: FlowDetails, format_: str) -> str:
    """The graph as text: `mermaid` or `dot`."""
    return mermaid(details) if format_ == "mermaid" else dot(details)


def mermaid(details: FlowDetails) -> str:
    """For Mermaid: GitHub, GitLab and many editors draw it in a block of Markdown."""
    places = {node.name: f"n{number}" for number, node in enumerate(details.nodes)}
    lines = ["flowchart LR"]
    lines += [f'    {places[n.name]}["{_mermaid_text(_label(n))}"]' for n in details.nodes]
    lines += [f"    {places[a]} --> {places[b]}" for a, b in details.edges if a in places and b in places]
    lines += [f"    style {places[n.name]} fill:{_colour(n)}" for n in details.nodes]
    return "\n".join(lines)


def dot(details: FlowDetails) -> str:
    """For Graphviz: `tasklib flow graph ID --format dot | dot -Tsvg`."""
    lines = ["digraph flow {", "    rankdir=LR; node [shape=box, style=filled];"]
    lines += [
        f"    {_quoted(n.name)} [label={_quoted(_label(n))}, fillcolor={_quoted(_colour(n))}];" for n in details.nodes
    ]
    lines += [f"    {_quoted(a)} -> {_quoted(b)};" for a, b in details.edges]
    return "\n".join([*lines, "}"])


def _label(node: NodeInfo) -> str:
    if node.count == 1:
        return f"{printable(node.name)}: {next(iter(node.states))}"
    return f"{printable(node.name)}: {node.states.get('completed', 0)} of {node.count}"


def _colour(node: NodeInfo) -> str:
    return next((colour for state, colour in _COLOURS.items() if state in node.states), "#ffffff")


def _mermaid_text(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _quoted(text: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
