"""Markdown pages as lists of blocks, and what a page says about its blocks in comments.

A block runs unless the comment above it says otherwise:

    <!-- not run: why -->     never run; Python is still compiled, and `tasklib` commands are still parsed
    <!-- needs fastapi -->    run only where this module is installed
    <!-- background -->       a program that goes on: started, and stopped at the end of the page
    <!-- raises ErrorName --> this Python code must raise that error
    <!-- fails: why -->       this command must end with 1
    <!-- hidden ... -->       Python code that runs here and that the reader doesn't see

Python code that begins with a comment such as `# tasks.py` is that file: it is saved, not run. After
`# tasks.py, continued` it is added to the end of the file.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNNABLE = frozenset({"python", "sql", "bash", "console"})
SHOWN = frozenset({"text", "ini", "toml", "json"})

_FENCE = re.compile(r"^( *)```(\w*)$")
_COMMENT = re.compile(r"^<!-- (not run|needs|background|raises|fails)(?::? (.+))? -->$")
_HIDDEN, _GENERATED = "<!-- hidden", "<!-- generated"
_FILE = re.compile(r"# ([\w/]+\.py)(, continued)?$")


@dataclass(frozen=True)
class Block:
    """A piece of code on a page."""

    language: str
    code: str
    line: int
    """Where its first line of code is on the page."""
    directive: str = ""
    detail: str = ""

    @property
    def file(self) -> str | None:
        """The name of the file that this block is, if it says so."""
        match = self._first_line()
        return match[1] if match else None

    @property
    def continues(self) -> bool:
        """True if the file exists and this is added to it."""
        match = self._first_line()
        return match is not None and match[2] is not None

    def _first_line(self) -> re.Match[str] | None:
        return _FILE.match(self.code.partition("\n")[0]) if self.language == "python" else None

    @property
    def is_run(self) -> bool:
        return self.language in RUNNABLE and self.directive != "not run"


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def blocks(self) -> list[Block]:
        return list(_blocks(self.text, self.name))


def all_pages() -> list[Page]:
    """README.md, the other pages beside it, everything in docs/, and the list of examples."""
    return [Page(p) for p in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])]


def _blocks(text: str, name: str) -> Iterator[Block]:
    lines = iter(enumerate(text.splitlines(), start=1))
    directive, detail = "", ""
    for number, line in lines:
        if line.startswith("<!--"):
            if line.startswith(_GENERATED):
                continue
            if line == _HIDDEN:
                yield Block("python", _until(lines, "-->"), number + 1)
                continue
            match = _COMMENT.match(line)
            if match is None:
                raise ValueError(f"{name}:{number}: a comment that means nothing: {line}")
            directive, detail = match[1], match[2] or ""
            if directive != "background" and not detail:
                raise ValueError(f"{name}:{number}: <!-- {directive} --> doesn't say what or why")
        elif match := _FENCE.match(line):
            indent, language = match.groups()
            if language not in RUNNABLE | SHOWN:
                raise ValueError(f"{name}:{number}: a block in {language or 'no language'}; text is for the rest")
            yield Block(language, _until(lines, f"{indent}```"), number + 1, directive, detail)
            directive, detail = "", ""
        elif line.strip() and directive:
            raise ValueError(f"{name}:{number}: <!-- {directive} --> is not followed by a block")


def _until(lines: Iterator[tuple[int, str]], end: str) -> str:
    code = []
    for _, line in lines:
        if line == end:
            return textwrap.dedent("\n".join(code)).rstrip()
        code.append(line)
    raise ValueError(f"a block is not closed with {end}")
