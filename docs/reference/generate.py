"""Write the generated parts of the reference anew: `python docs/reference/generate.py`.

A part lies between `<!-- generated: name -->` and `<!-- generated: end -->`; the rest of a page is written by hand.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import typer

from tasklib import config
from tasklib.cli.app import app
from tasklib.config import Config, Level

HERE = Path(__file__).parent


def settings() -> str:
    """Every field of Config: its name, type, default and sentence."""
    sentences = dict(_sentences())
    rows = [
        f"| `{f.name}` | `{str(f.type).replace('|', 'or')}` | {_default(f)} | {sentences[f.name]} |" for f in fields(Config)
    ]
    return "\n".join(["| setting | type | default | |", "|---|---|---|---|", *rows])


def levels() -> str:
    """The default levels."""
    default: Any = next(f.default_factory for f in fields(Config) if f.name == "levels")
    rows = [
        f"| `{name!r}` | {level.priority} | {level.max_retries} | {level.timeout_seconds} |".replace("'", '"')
        for name, level in default().items()
    ]
    names = " | ".join(f"`{f.name}`" for f in fields(Level))
    return "\n".join([f"| level | {names} |", "|---|---|---|---|", *rows])


def commands() -> str:
    """Every command with its arguments and options."""
    known: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return "\n\n".join(_command(name, command) for name, command in known.items())


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "configuration.md": {"settings": settings, "levels": levels},
    "cli.md": {"commands": commands},
}


def written_anew(page: str) -> str:
    """The text of a page with its generated parts as they should be."""
    text = (HERE / page).read_text(encoding="utf-8")
    for name, part in PARTS[page].items():
        begin, end = f"<!-- generated: {name} -->", "<!-- generated: end -->"
        before, found, rest = text.partition(begin)
        assert found, f"{page} has no {begin}"
        text = f"{before}{begin}\n\n{part()}\n\n{end}{rest.partition(end)[2]}"
    return text


def _sentences() -> Iterator[tuple[str, str]]:
    """The string below each field in the source of Config."""
    tree = ast.parse(inspect.getsource(config))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Config")
    for field, sentence in zip(body, body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(sentence, ast.Expr), f"{field.target.id} has no sentence"
            yield field.target.id, ast.literal_eval(sentence.value)


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"`{field.default!r}`"
    return "see below" if field.default_factory is not MISSING else "required"


def _command(name: str, command: Any) -> str:
    parameters = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    usage = " ".join(["tasklib", name, "[OPTIONS]", *map(_in_usage, arguments)])
    parts = [f"## {name}", f"```text\n{usage}\n```", *_paragraphs(command.help or "")]
    if parameters:
        rows = [_row(p) for p in [*arguments, *(p for p in parameters if p not in arguments)]]
        parts.append("\n".join(["| | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        line = " ".join(paragraph.split())
        yield re.sub(r"^Example: (.*)$", r"Example: `\1`", line)


def _in_usage(argument: Any) -> str:
    many = "..." if argument.nargs == -1 else ""
    return f"{_value(argument)}{many}" if argument.required else f"[{_value(argument)}]{many}"


def _row(parameter: Any) -> str:
    is_flag = getattr(parameter, "is_flag", False)
    value = "" if is_flag or parameter.param_type_name == "argument" else f" {_value(parameter)}"
    names = _value(parameter) if parameter.param_type_name == "argument" else ", ".join(sorted(parameter.opts, key=len))
    notes = []
    if parameter.default not in (None, False, ()) and not isinstance(parameter.default, type(...)) and not is_flag:
        notes.append(f"Default: {getattr(parameter.default, 'value', parameter.default)}.")
    if parameter.envvar:
        notes.append(f"Variable: `{parameter.envvar}`.")
    text = " ".join(filter(None, [getattr(parameter, "help", "") or "", *notes]))
    return f"| `{names}{value}` | {text.replace('|', 'or')} |"


def _value(parameter: Any) -> str:
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return "/".join(getattr(c, "value", str(c)) for c in choices)
    return str(parameter.metavar or parameter.name.upper())


if __name__ == "__main__":
    for page in PARTS:
        anew = written_anew(page)
        if anew != (HERE / page).read_text(encoding="utf-8"):
            (HERE / page).write_text(anew, encoding="utf-8")
            sys.stdout.write(f"wrote {page}\n")
