"""Write the generated parts of the reference anew: `python docs/reference/generate.py`.

A part lies between `<!-- generated: name -->` and `<!-- generated: end -->`; the rest of a page is written by hand.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import celery_names
import http_api
from typer.models import ArgumentInfo, CommandInfo, OptionInfo

from tasklib import config
from tasklib.cli.app import app
from tasklib.config import Config, Level

HERE = Path(__file__).parent


def settings() -> str:
    """Every field of Config: its name, type, default and sentence."""
    return _table(Config, dict(_sentences(config, "Config")))


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
    parts = [_command(info) for info in app.registered_commands]
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        if inner.registered_callback is not None and inner.registered_callback.callback is not None:
            parts.append(_command(CommandInfo(name=group.name, callback=inner.registered_callback.callback)))
        parts += [_command(info, f"{group.name} ") for info in inner.registered_commands]
    return "\n\n".join(parts)


def problems() -> str:
    """Every code of a problem over HTTP."""
    from tasklib.server.problems import KNOWN

    rows = [f"| `{code}` | {known.status} | {known.meaning} |" for code, known in KNOWN.items()]
    return "\n".join(["| code | status | |", "|---|---|---|", *rows])


def server_settings() -> str:
    """Every field of ServerSettings."""
    from tasklib.server import settings
    from tasklib.server.settings import ServerSettings

    return _table(ServerSettings, dict(_sentences(settings, "ServerSettings")))


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "configuration.md": {"settings": settings, "levels": levels, "server settings": server_settings},
    "http-errors.md": {"problems": problems},
    "cli.md": {"commands": commands},
    "celery.md": {
        "names": celery_names.names_table,
        "options": celery_names.options_table,
        "settings": celery_names.settings_table,
    },
    "http-api.md": {"operations": http_api.operations, "models": http_api.models},
}


def written_anew(page: str) -> str:
    """The text of a page with its generated parts as they should be."""
    if page == http_api.DOCUMENT:
        return http_api.text()
    text = (HERE / page).read_text(encoding="utf-8")
    for name, part in PARTS[page].items():
        begin, end = f"<!-- generated: {name} -->", "<!-- generated: end -->"
        before, found, rest = text.partition(begin)
        assert found, f"{page} has no {begin}"
        text = f"{before}{begin}\n\n{part()}\n\n{end}{rest.partition(end)[2]}"
    return text


def _table(settings: type[Any], sentences: dict[str, str]) -> str:
    types = {f.name: str(f.type).replace("|", "or") for f in fields(settings)}
    rows = [f"| `{f.name}` | `{types[f.name]}` | {_default(f)} | {sentences[f.name]} |" for f in fields(settings)]
    return "\n".join(["| setting | type | default | |", "|---|---|---|---|", *rows])


def _sentences(module: ModuleType, name: str) -> Iterator[tuple[str, str]]:
    """The string below each field in the source of a class of settings."""
    tree = ast.parse(inspect.getsource(module))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    for field, sentence in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(sentence, ast.Expr), f"{field.target.id} has no sentence"
            yield field.target.id, " ".join(ast.literal_eval(sentence.value).split())


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"`{field.default!r}`"
    return "see below" if field.default_factory is not MISSING else "required"


@dataclass(frozen=True)
class _Parameter:
    """An argument or option of a command, as its function declares it."""

    name: str
    kind: Any
    info: ArgumentInfo | OptionInfo
    default: Any

    @property
    def is_argument(self) -> bool:
        return isinstance(self.info, ArgumentInfo)

    @property
    def value(self) -> str:
        """What stands for its value: `N`, `auto/human/json`, or nothing for a flag."""
        for part in _parts(self.kind):
            if isinstance(part, type) and issubclass(part, StrEnum):
                return "/".join(part)
        return "" if self.kind is bool else self.info.metavar or self.name.rstrip("_").upper()

    @property
    def in_usage(self) -> str:
        many = "..." if list in map(get_origin, _parts(self.kind)) else ""
        return f"{self.value}{many}" if self.default is inspect.Parameter.empty else f"[{self.value}]{many}"

    @property
    def row(self) -> str:
        # Inside Annotated, typer.Option takes its first name for the default.
        declared = [n for n in (self.info.default, *(self.info.param_decls or ())) if str(n).startswith("-")]
        names = declared or [f"--{self.name.rstrip('_').replace('_', '-')}"]
        shown = self.value if self.is_argument else f"{', '.join(sorted(names, key=len))} {self.value}".strip()
        notes = [self.info.help or ""]
        if self.default not in (None, False, "", inspect.Parameter.empty):
            notes.append(f"Default: {self.default}.")
        if self.info.envvar:
            notes.append(f"Variable: `{self.info.envvar}`.")
        return f"| `{shown}` | {' '.join(filter(None, notes))} |"


def _parts(kind: Any) -> Iterator[Any]:
    """The type itself and all types in it."""
    yield kind
    for part in get_args(kind):
        yield from _parts(part)


def _command(info: CommandInfo, group: str = "") -> str:
    function = info.callback
    assert function is not None
    name = group + (info.name or function.__name__)
    parameters = list(_parameters(function))
    arguments = [p for p in parameters if p.is_argument]
    options = ["[OPTIONS]"] if len(parameters) > len(arguments) else []
    usage = " ".join(["tasklib", name, *options, *(p.in_usage for p in arguments)])
    parts = [f"## {name}", f"```text\n{usage}\n```", *_paragraphs(function.__doc__ or "")]
    if parameters:
        rows = [p.row for p in sorted(parameters, key=lambda p: not p.is_argument)]
        parts.append("\n".join(["| | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _parameters(function: Callable[..., Any]) -> Iterator[_Parameter]:
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        # The context is Typer's, not the user's.
        kind, info = get_args(hints[name]) or (hints[name], None)
        if info is not None and not info.hidden:
            yield _Parameter(name, kind, info, parameter.default)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield re.sub(r"^Example: (.*)$", r"Example: `\1`", " ".join(paragraph.split()))


if __name__ == "__main__":
    for page in (*PARTS, http_api.DOCUMENT):
        anew = written_anew(page)
        if not (HERE / page).exists() or anew != (HERE / page).read_text(encoding="utf-8"):
            (HERE / page).write_text(anew, encoding="utf-8")
            sys.stdout.write(f"wrote {page}\n")
