"""What the pages show is true: every block of code runs, every command exists, every link leads somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tasklib.cli.app import app
from tests.docs.pages import ROOT, Page, all_pages
from tests.docs.performance import performance

PAGES = all_pages()
# Read word for word by somebody who has nothing yet: no database, no tables.
FROM_NOTHING = {"README.md", "docs/tutorial.md"}
WITH_CODE = [page for page in PAGES if any(block.is_run for block in page.blocks)]

every_page = pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_CODE, ids=[p.name for p in WITH_CODE])
def test_every_block_runs(
    page: Page, request: pytest.FixtureRequest, tmp_path: Path, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name in FROM_NOTHING:
        url, variables = request.getfixturevalue("empty_database_url"), {}
    else:
        url = request.getfixturevalue("database_url")
        variables = {"TASKLIB_DATABASE_URL": url}
    variables["TASKLIB_TEST_DATABASE_URL"] = server_url
    with performance(page, tmp_path, url, variables=variables, patch=monkeypatch) as reading:
        for block in page.blocks:
            try:
                reading.perform(block)
            except BaseException as e:
                e.add_note(f"This was the block at {page.name}:{block.line}.")
                raise


@every_page
def test_every_command_exists(page: Page) -> None:
    known = typer.main.get_command(app).commands
    for line, (name, *arguments) in _tasklib_commands(page):
        place = f"{page.name}:{line}: tasklib {name} {shlex.join(arguments)}"
        assert name in known or name == "--version", f"{place}: no such command"
        if name in known and "--help" not in arguments:
            try:
                known[name].make_context(name, arguments)
            except Exception as e:
                raise AssertionError(f"{place}: {e}") from e


@every_page
def test_every_link_leads_somewhere(page: Page) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_code(page.text)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.path.parent / path).resolve() if path else page.path
        assert linked.exists(), f"{page.name} links to {target}"
        assert linked.is_relative_to(ROOT), f"{page.name} links out of the project: {target}"
        if anchor:
            assert anchor in _anchors(linked.read_text()), f"{page.name} links to {target}: no such heading"


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    for page in PAGES:
        if page.name.startswith("docs/") and page.name != "docs/README.md":
            assert f"({page.name.removeprefix('docs/')})" in index, f"docs/README.md does not mention {page.name}"


def test_the_promise_is_made_in_the_same_words_everywhere() -> None:
    promises = {page.name: "".join(re.findall(r"^> .*\n", page.text, re.MULTILINE)) for page in PAGES}
    made = {name: promise for name, promise in promises.items() if "exactly one terminal state" in promise}
    assert set(made) == {"README.md", "docs/explanation/guarantees.md"}
    assert len(set(made.values())) == 1


def _tasklib_commands(page: Page) -> Iterator[tuple[int, list[str]]]:
    """The arguments of every `tasklib` in a shell block or a unit file, and inline as `tasklib ...`."""
    for block in page.blocks:
        if block.language in ("bash", "console", "ini"):
            script = block.code.replace("\\\n", " ")
            for match in re.finditer(r"^(?:\$ |ExecStart=\S*/)?tasklib (.*)$", script, re.MULTILINE):
                yield block.line, shlex.split(_without_pipes(match[1]), comments=True)
    for match in re.finditer(r"`tasklib ([a-z][^`]*)`", _without_code(page.text)):
        if "MODULE" not in match[1] and "..." not in match[1]:
            words = shlex.split(_without_pipes(match[1]))
            yield page.text[: match.start()].count("\n") + 1, words if len(words) > 1 else [*words, "--help"]


def _without_pipes(line: str) -> str:
    return re.sub(r"\s(?:[|>]|#\s).*", "", line)


def _without_code(text: str) -> str:
    # The lines stay, so that places keep their numbers.
    return re.sub(r"^ *```.*?^ *```$", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
