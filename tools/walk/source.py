"""What can be counted without running the code."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE_LINES = 300
FUNCTION_LINES = 30


def survey(package: Path) -> dict[str, Any]:
    """The size of a package, and what in it is longer than it should be or has a name twice."""
    python = {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}
    sql = {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.sql"))}
    trees = {name: ast.parse(text) for name, text in python.items()}
    return {
        "python": {"files": len(python), "lines": sum(map(_lines, python.values()))},
        "sql": {"files": len(sql), "lines": sum(map(_lines, sql.values()))},
        "long_files": {name: _lines(text) for name, text in (python | sql).items() if _lines(text) > FILE_LINES},
        "long_functions": {
            f"{name}:{function.lineno} {function.name}": length
            for name, tree in trees.items()
            for function, length in _functions(tree)
            if length > FUNCTION_LINES
        },
        "classes_defined_twice": _twice(trees),
        "modules_that_only_re_export": [name for name, tree in trees.items() if _only_re_exports(tree)],
    }


def _lines(text: str) -> int:
    return text.count("\n")


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node, node.end_lineno - node.lineno + 1


def _twice(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{name}:{node.lineno}")
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def _only_re_exports(tree: ast.Module) -> bool:
    """Whether a module has imports and nothing else but its docstring and `__all__`."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return bool(imports) and all(node in imports or _is_docstring(node) or _names_exports(node) for node in tree.body)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _names_exports(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
