"""What contributors rely on: continuous integration runs what runs here, on the versions that the package names."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

import tasklib
from tests.docs.pages import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def _jobs() -> dict[str, Any]:
    return {name: job for workflow in WORKFLOWS for name, job in yaml.safe_load(workflow.read_text())["jobs"].items()}


def _runs(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def _recipe(target: str) -> list[str]:
    found = re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None, f"make {target} doesn't exist"
    return [line.strip() for line in found[1].splitlines()]


def _supported() -> list[str]:
    classifiers = PYPROJECT["project"]["classifiers"]
    return [found[1] for line in classifiers if (found := re.fullmatch(r"Programming .* :: (3\.\d+)", line))]


@pytest.mark.parametrize("job", ["all", "postgres"])
def test_ci_runs_every_python_that_the_package_names(job: str) -> None:
    assert _jobs()[job]["strategy"]["matrix"]["python"] == _supported()
    assert PYPROJECT["project"]["requires-python"] == f">={_supported()[0]}"


def test_ci_runs_the_integration_tests_on_postgresql_14_to_18() -> None:
    job = _jobs()["postgres"]
    assert job["strategy"]["matrix"]["postgres"] == ["14", "15", "16", "17", "18"]
    assert "make test-integration" in _runs(job)
    assert "TASKLIB_TEST_DATABASE_URL" in job["env"]


def test_ci_runs_only_make_targets_that_run_here_too() -> None:
    called = [target for job in _jobs().values() for target in re.findall(r"\bmake ([\w-]+)", _runs(job))]
    assert {"test", "test-long", "coverage", "test-integration"} <= set(called)
    for target in called:
        assert _recipe(target)


def test_coverage_has_a_floor() -> None:
    floor = re.search(r"^COVERAGE_FLOOR \?= (\d+)$", MAKEFILE, re.MULTILINE)
    assert floor is not None
    assert int(floor[1]) > 50
    assert "--cov-fail-under=$(COVERAGE_FLOOR)" in " ".join(_recipe("coverage"))


def test_pre_commit_runs_the_commands_of_make_check() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    ours = {hook["entry"] for hook in hooks}
    checked = {line for target in ("lint", "types", "imports") for line in _recipe(target)}
    assert ours == {line.replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in checked}


def test_the_package_names_its_pages() -> None:
    urls = PYPROJECT["project"]["urls"]
    assert {"Documentation", "Source", "Issues", "Changelog"} <= urls.keys()
    assert all(url.startswith("https://") for url in urls.values())


def test_the_version_is_in_one_place() -> None:
    assert "version" in PYPROJECT["project"]["dynamic"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "src/tasklib/__init__.py"
    assert re.match(r"# Changelog\n.*?\n## Unreleased\n", (ROOT / "CHANGELOG.md").read_text(), re.DOTALL)
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", tasklib.__version__)


def test_issue_forms_ask_for_what_a_report_needs() -> None:
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")}
    for name in ("bug", "feature"):
        assert {"name", "description", "body"} <= forms[name].keys()
        ids = [field["id"] for field in forms[name]["body"]]
        assert len(set(ids)) == len(ids)
        assert any(field.get("validations", {}).get("required") for field in forms[name]["body"])
    assert "versions" in [field["id"] for field in forms["bug"]["body"]]


def test_every_make_target_that_contributing_md_names_exists() -> None:
    for target in set(re.findall(r"\bmake ([a-z][\w-]+)", CONTRIBUTING)):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"make {target}"


@pytest.mark.parametrize("heading", ["Set up", "The map", "Four common changes", "Style", "Commits and pull requests"])
def test_contributing_md_answers_what_a_newcomer_asks(heading: str) -> None:
    assert f"\n## {heading}\n" in CONTRIBUTING


@pytest.mark.parametrize("step", ["__version__", "CHANGELOG.md", "git push origin main v", "twine upload"])
def test_contributing_md_says_how_to_release(step: str) -> None:
    assert step in CONTRIBUTING.partition("\n## Release\n")[2]
