"""Results in words, as JSON and as a picture."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tasklib.bench import report
from tasklib.bench.plan import Plan
from tasklib.bench.workloads import WORKLOADS
from tests.bench.made_up import FACTS, result, results

BEGAN = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_row_says_the_median_the_range_and_the_comparison() -> None:
    assert report.row(result("W1", 1000.0, 3000.0, 2000.0)) == (
        "W1",
        "submit one by one",
        "2,000 tasks/s",
        "1,000 - 3,000",
        "0.50 x a bare INSERT",
    )


def test_one_round_has_no_range() -> None:
    assert report.row(result("W3", 1000.0)) == ("W3", "drain, one worker", "1,000 tasks/s", "", "")


@pytest.mark.parametrize(
    ("id_", "shown", "compared"),
    [
        ("W5", "1.25 ms", "p99 4.50 ms"),
        ("W8", "1 tasks/s", "0.50 x W3, last quarter 0.90 x first"),
        ("W9", "1.25 CPU s", "server 0.75 s, worker 0.50 s"),
    ],
)
def test_rows_say_what_else_matters(id_: str, shown: str, compared: str) -> None:
    row = report.row(result(id_, 1.25))
    assert (row[2], row[4]) == (shown, compared)


def test_cpu_time_of_a_server_elsewhere_is_not_known() -> None:
    row = report.row(result("W9", None, None, details={"server": None, "worker": 0.5}))
    assert row[2:] == ("not known", "", "server not known, worker 0.50 s")


def test_the_json_has_everything() -> None:
    made = json.loads(json.dumps(report.as_json(FACTS, Plan(), results(1.0, 2.0, 4.0), BEGAN)))
    assert made["began"] == "2025-01-02T03:04:05+00:00"
    assert made["plan"] == {"scale": 0.2, "repeats": 3, "concurrency": 500}
    assert made["facts"]["settings"] == {"fsync": "on"}
    assert [w["id"] for w in made["workloads"]] == list(WORKLOADS)
    first = made["workloads"][0]
    assert first["name"] == "submit one by one"
    assert (first["value"], first["unit"], first["tasks"]) == (2.0, "tasks/s", 100)
    assert (first["compared_with"], first["against"], first["ratio"]) == ("a bare INSERT", 4.0, 0.5)
    assert first["samples"][2] == {"value": 4.0, "against": 8.0, "details": {}, "ratio": 0.5}


def test_the_circumstances_are_said_in_lines() -> None:
    assert FACTS.lines() == [
        "TaskLib 1.2.3 (abc1234), Python 3.11.7, psycopg 3.2.1, no uvloop",
        "PostgreSQL 18.1, embedded, data on ext4: fsync on",
        "Linux 6.1 x86_64, A Processor, 4 cores, 16 GB",
        "settings: listen=False",
    ]


def drawn(path: Path, *values: float, only: str = "") -> Path:
    pytest.importorskip("matplotlib", reason="the extra bench is not installed")
    from tasklib.bench.chart import draw

    draw(FACTS, Plan(), [result(only, *values)] if only else results(*values), path)
    return path


def test_an_svg_names_every_workload_and_the_circumstances(tmp_path: Path) -> None:
    root = ElementTree.parse(drawn(tmp_path / "chart.svg", 900.0, 1100.0, 1000.0)).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    text = "\n".join(root.itertext())
    for workload in WORKLOADS.values():
        assert f"{workload.id}  {workload.name}" in text
    assert "PostgreSQL 18.1, embedded" in text
    assert "median of 3 rounds" in text


def test_a_png_is_one(tmp_path: Path) -> None:
    data = drawn(tmp_path / "chart.PNG", 1000.0).read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert width == 1500
    assert height > 500


def test_a_single_workload_can_be_drawn(tmp_path: Path) -> None:
    assert "W5" in drawn(tmp_path / "chart.svg", 1.0, only="W5").read_text()
