"""The command line.

python -m benchmarks.simulation measure     # what each statement costs on this machine, about five minutes
python -m benchmarks.simulation check       # the model beside real runs on this machine, about ten minutes
python -m benchmarks.simulation predict     # fleets of 1 to 1,000 nodes, from the measured costs: a minute, no server
python -m benchmarks.simulation page        # the tables of docs/explanation/scale.md from these
"""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from typing import Any

from benchmarks.simulation.costs import RESULTS, keep, measured_costs
from benchmarks.simulation.page import write
from tasklib.bench.machine import hardware


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("measure", "check", "predict", "page"))
    parser.add_argument("--dry", action="store_true", help=f"Print only; {RESULTS.name} stays as it is.")
    given = parser.parse_args()
    described = _described()
    if given.part == "page":
        write()
        return
    match given.part:
        case "measure":
            from benchmarks.simulation.measuring import measured

            part, found = "measured", {**described, "costs": measured().as_json()}
        case "check":
            from benchmarks.simulation.check import checked

            part, found = "checked", {**described, **checked(measured_costs())}
        case _:
            from benchmarks.simulation.predict import predicted

            part, found = "predicted", predicted(measured_costs())
    if not given.dry:
        keep(part, found)


def _described() -> dict[str, Any]:
    return {
        "on": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": {**hardware(), "load_before": round(os.getloadavg()[0], 2)},
    }


if __name__ == "__main__":
    main()
