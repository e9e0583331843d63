"""What MkDocs does besides: contents from README.md, the Python reference from docstrings, links out of docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PYTHON = "reference/python.md"
_ENTRY = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<path>[^)#]+\.md)\)")
_LINK_OUT = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>(?:src|examples|proof|benchmarks|tests)/[^)]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = contents((ROOT / "docs" / "README.md").read_text())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, PYTHON, content=python_reference()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A link to a file of the source leads nowhere on the site: name the file instead."""
    return _LINK_OUT.sub(r"\g<text> (`\g<path>`)", markdown)


def contents(readme: str) -> list[Any]:
    """The navigation: the headings and lists of README.md."""
    nav: list[Any] = [{"Home": "README.md"}]
    part: list[Any] = []
    within: list[Any] = part
    for line in readme.splitlines():
        if line.startswith("## "):
            within = part = []
            nav.append({line[3:]: part})
        elif (entry := _ENTRY.match(line)) is not None:
            within.append({entry["title"]: entry["path"]})
        elif line and line[0].isalpha() and len(line.split()) < 4:
            within = []
            part.append({line: within})
    nav = [chapter for chapter in nav if all(chapter.values())]
    next(chapter["Reference"] for chapter in nav if "Reference" in chapter).append({"Python, from docstrings": PYTHON})
    return nav


def python_reference() -> str:
    """A page that has mkdocstrings show every public name of the package."""
    import tasklib

    names = "\n\n".join(f"::: tasklib.{name}" for name in sorted(tasklib.__all__, key=str.lower) if name != "sync")
    return f"# Python, from docstrings\n\nEvery name of `tasklib`. The [API page](api.md) has examples.\n\n{names}\n"
