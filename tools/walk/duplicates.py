"""Blocks of code that occur twice: windows of normalised lines with the same hash, joined where they overlap."""

from __future__ import annotations

import io
import keyword
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WINDOW = 8
DIFFERENT = 5
"""A window of lines that are all alike, such as a list of assignments, is no copy of another such list."""


class Line(NamedTuple):
    number: int
    text: str


class Block(NamedTuple):
    """The same lines in two places."""

    lines: int
    first: str
    second: str


def duplicates(package: Path, *, names_differ: bool) -> list[Block]:
    """Blocks of at least WINDOW lines. `names_differ`: also those that differ in names, numbers and texts alone."""
    files = {
        str(path.relative_to(package)): list(_lines(path.read_text(), names_differ))
        for path in sorted(package.rglob("*.py"))
    }
    places: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in files.items():
        for start in range(len(lines) - WINDOW + 1):
            window = tuple(line.text for line in lines[start : start + WINDOW])
            if len(set(window)) >= DIFFERENT:
                places[window].append((name, start))
    pairs = {
        (first, other)
        for found in places.values()
        for i, first in enumerate(found)
        for other in found[i + 1 :]
        if first[0] != other[0] or other[1] - first[1] >= WINDOW
    }
    return sorted(_joined(pairs, files), reverse=True)


def _joined(pairs: set[tuple[tuple[str, int], tuple[str, int]]], files: dict[str, list[Line]]) -> Iterator[Block]:
    for (a, i), (b, j) in sorted(pairs):
        if ((a, i - 1), (b, j - 1)) in pairs:
            continue
        windows = 1
        while ((a, i + windows), (b, j + windows)) in pairs:
            windows += 1
        length = windows + WINDOW - 1
        yield Block(length, _place(a, files[a][i : i + length]), _place(b, files[b][j : j + length]))


def _place(name: str, lines: list[Line]) -> str:
    return f"{name}:{lines[0].number}-{lines[-1].number}"


def _lines(text: str, names_differ: bool) -> Iterator[Line]:
    """The logical lines without comments, docstrings and imports."""
    tokens: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            line = tokens
            tokens = []
            if line[0].string in ("import", "from") or all(t.type == tokenize.STRING for t in line):
                continue
            yield Line(line[0].start[0], " ".join(_normalised(t, names_differ) for t in line))
        elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            tokens.append(token)


def _normalised(token: tokenize.TokenInfo, names_differ: bool) -> str:
    if names_differ and token.type == tokenize.NAME and not keyword.iskeyword(token.string):
        return "name"
    if names_differ and token.type in (tokenize.STRING, tokenize.NUMBER):
        return "value"
    return token.string
