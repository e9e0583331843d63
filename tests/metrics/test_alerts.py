"""The alert rules by promtool, and that rules and dashboard only name metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest

from tasklib.metrics import exposition, families
from tasklib.metrics.families import Reading
from tasklib.store.breakers import BreakerInfo
from tasklib.store.levels import FleetFigures, QueueLevel, StateCount
from tasklib.store.limits import LimitInfo

RULES = files("tasklib.metrics").joinpath("alerts.yml").read_text()
GRAFANA = files("tasklib.metrics").joinpath("grafana.json").read_text()
CASES = Path(__file__).with_name("alerts_test.yml").read_text()
_NAME = re.compile(r"[a-z][a-z_]*_[a-z_]+(?=[{\[)]| by|$)")
FUNCTIONS = {"histogram_quantile"}

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")


def exposed() -> set[str]:
    """The names of all series that a scrape can have."""
    fleet = FleetFigures({"active": (1, 10, 5)}, 1, True, 3.0, 0, 0, 0.0)
    level = QueueLevel("default", "low", 1, False, False, 1.0, 1.0, 1.0, 1.0, False)
    now = datetime.now(UTC)
    limit = LimitInfo("stripe", 5, None, None, None, None, None, None, "code", None, now, 1, None)
    terms = (0.5, 20, 60.0, 60.0, 3)
    breaker = BreakerInfo("charge", "open", now, None, 1, *terms, "code", None, now, 20, 10, 0, 0)
    states = [StateCount("pending", 1, False)]
    text = exposition.text(families.of_server(Reading([], [level], states, fleet, [], [limit], [breaker])))
    return {line.split("{")[0].split(" ")[0] for line in text.decode().splitlines() if not line.startswith("#")}


@promtool
def test_each_rule_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(RULES)
    (tmp_path / "cases.yml").write_text(CASES)
    ran = subprocess.run(
        ["promtool", "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_rule_has_a_case() -> None:
    rules = re.findall(r"alert: (\w+)", RULES)
    assert len(rules) == 12
    assert set(re.findall(r"alertname: (\w+)", CASES)) == set(rules)


def test_rules_name_only_metrics_that_are_exposed() -> None:
    expressions = re.findall(r"expr: \|\n((?: {10,}.*\n)+)|expr: (.*)", RULES)
    named = {n for several, one in expressions for n in _NAME.findall((several or one) + "\n")}
    assert len(named) >= 9
    assert named <= exposed()


def test_the_page_lists_every_metric_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "monitor.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert listed == {re.sub(r"_(bucket|count|sum)$", "", name) for name in exposed()}


def test_the_dashboard_names_only_metrics_that_are_exposed() -> None:
    panels = json.loads(GRAFANA)["panels"]
    named = {n for p in panels for t in p["targets"] for n in _NAME.findall(t["expr"])} - FUNCTIONS
    assert len(named) >= 20
    assert named <= exposed()
