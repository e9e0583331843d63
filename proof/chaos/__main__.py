"""`make chaos`: break it on purpose, and let the checker decide.

python -m proof.chaos --seconds 300 --seed 7
python -m proof.chaos --schedules 200 --seconds 600 --rate 20
python -m proof.chaos --flows 20000 --rate 100
python -m proof.chaos --limits --seconds 300 --rate 60
python -m proof.chaos --seed 1 --faults 500 --tasks 1000000 --report proof/results/chaos.json
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from proof.chaos import flows, limited_tasks, schedules
from proof.chaos.faults import FAULTS
from proof.chaos.run import Plan, run
from proof.history.checker import lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=0, help="at least so many")
    parser.add_argument("--tasks", type=int, default=0, help="at least so many")
    parser.add_argument("--kinds", default="", help=f"separated by commas, of: {', '.join(FAULTS)}")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two faults, on average")
    parser.add_argument("--rate", type=float, default=700, help="tasks a second, about")
    parser.add_argument("--schedules", type=int, default=0, help="so many schedules of one second; their faults only")
    parser.add_argument("--flows", type=int, default=0, help="at least so many flows; their faults only")
    parser.add_argument("--limits", action="store_true", help="tasks behind limits; their faults only")
    parser.add_argument("--report", type=Path, help="write the figures here, as JSON")
    parser.add_argument("--logs", type=Path, help="keep what the programs logged in this new directory")
    given = parser.parse_args()
    kinds = tuple(kind.strip() for kind in given.kinds.split(",") if kind.strip())
    kinds = kinds or (
        limited_tasks.KINDS
        if given.limits
        else flows.KINDS
        if given.flows
        else schedules.KINDS
        if given.schedules
        else tuple(FAULTS)
    )
    if unknown := set(kinds) - FAULTS.keys():
        parser.error(f"no fault is called {', '.join(sorted(unknown))}")
    plan = Plan(
        given.seconds,
        given.seed,
        given.faults,
        given.tasks,
        kinds,
        given.rate,
        given.pause,
        schedules=given.schedules,
        flows=given.flows,
        logs=given.logs,
        limits=given.limits,
    )
    outcome = run(plan, lambda text: print(text, flush=True))
    figures = {
        "command": "python -m proof.chaos " + " ".join(sys.argv[1:]),
        "seed": given.seed,
        "on": f"{datetime.now(UTC):%Y-%m-%d}",
        **outcome.figures(),
    }
    print(json.dumps(figures, indent=2))
    for line in lines(outcome.verdict):
        print(line)
    if given.report:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text(json.dumps(figures, indent=2) + "\n")
    if not outcome.quiet:
        print("some tasks never ended")
    print("every invariant holds" if outcome.holds else "IT DOES NOT HOLD")
    sys.exit(0 if outcome.holds else 1)


if __name__ == "__main__":
    main()
