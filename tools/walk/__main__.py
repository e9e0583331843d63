"""The command line."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.walk.duplicates import duplicates
from tools.walk.log import OTHER_DUTIES
from tools.walk.measuring import HOME, Walk
from tools.walk.source import FILE_LINES, FUNCTION_LINES, survey

PATHS = (
    "submit",
    "get",
    "wake-up to result",
    "wake-up to result, thread",
    "wake-up to result, process",
    "crash to recovery",
    "HTTP worker",
)


def main() -> None:
    # The measured programs are stopped on the way out, so a SIGTERM has to be a way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = _parser().parse_args()
    source = arguments.source.resolve()
    if not (source / "tasklib" / "__init__.py").is_file():
        sys.exit(f"{source} has no package tasklib: give the src folder of a checkout with --source.")
    sys.path.insert(0, str(source))
    measured = {"source": str(source), "paths": _walk(source, arguments), **_surveyed(source / "tasklib")}
    if arguments.json:
        print(json.dumps(measured, indent=2))
    else:
        _print(measured, arguments.list)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.walk", description=sys.modules["tools.walk"].__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--source", type=Path, default=HOME / "src", help="the src folder to measure; else this one")
    parser.add_argument("--paths", nargs="*", default=PATHS, choices=PATHS, metavar="PATH", help=", ".join(PATHS))
    parser.add_argument("--rounds", type=int, default=5, help="how often each path runs; what all of them enter counts")
    parser.add_argument("--database-url", help="a database without TaskLib's tables; else an embedded server")
    parser.add_argument("--list", action="store_true", help="also name the files, functions and blocks")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    return parser


def _walk(source: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.paths:
        return {}
    found = {}
    with _database(arguments.database_url) as url, tempfile.TemporaryDirectory() as directory:
        walk = Walk(source, url, Path(directory), arguments.rounds)
        for path in arguments.paths:
            for part, entered in walk.paths[path]().items():
                name = f"{path}, {part}" if part else path
                found[name] = {"files": entered.files, "functions": entered.functions}
    return found


@contextmanager
def _database(given: str | None) -> Iterator[str]:
    if given:
        yield given
        return
    from tasklib.embedded import EmbeddedPostgres

    with EmbeddedPostgres() as server:
        yield server.create_database("walk")


def _surveyed(package: Path) -> dict[str, Any]:
    same, alike = (duplicates(package, names_differ=differ) for differ in (False, True))
    return {
        "source_counts": survey(package),
        "duplicates": [block._asdict() for block in same],
        "duplicates_but_for_names": [block._asdict() for block in alike],
    }


def _print(measured: dict[str, Any], in_full: bool) -> None:
    print(f"{'path':<34}{'files':>7}{'functions':>11}")
    for path, entered in measured["paths"].items():
        print(f"{path:<34}{len(entered['files']):>7}{len(entered['functions']):>11}")
        if in_full:
            print(*(f"    {function}" for function in entered["functions"]), sep="\n")
    if "crash to recovery" in measured["paths"]:
        print(f"Not counted in a recovery: the duties {', '.join(OTHER_DUTIES)} of the same sweep.")
    print()
    counts = measured["source_counts"]
    for kind in ("python", "sql"):
        print(f"{kind:<34}{counts[kind]['files']:>7} files{counts[kind]['lines']:>8} lines")
    for title, found in {
        f"files over {FILE_LINES} lines": counts["long_files"],
        f"functions over {FUNCTION_LINES} lines": counts["long_functions"],
        "class names defined twice": counts["classes_defined_twice"],
        "modules that only re-export": counts["modules_that_only_re_export"],
        "duplicate blocks": measured["duplicates"],
        "duplicate blocks but for names": measured["duplicates_but_for_names"],
    }.items():
        print(f"{title:<34}{len(found):>7}")
        if in_full:
            print(*(f"    {item}" for item in _items(found)), sep="\n")


def _items(found: Any) -> list[str]:
    if isinstance(found, dict):
        return [f"{name}: {', '.join(value) if isinstance(value, list) else value}" for name, value in found.items()]
    return [item if isinstance(item, str) else f"{item['lines']}: {item['first']}, {item['second']}" for item in found]


if __name__ == "__main__":
    main()
