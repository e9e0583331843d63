"""`make test-shards`: four shards on two servers, one of them killed, frozen and cut off, and workers killed.

python -m proof.shards --rounds 3 --report proof/results/shards.json
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from proof.history.checker import lines
from proof.shards.run import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.shards", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="so many times all faults")
    parser.add_argument("--report", type=Path, help="write the figures here, as JSON")
    parser.add_argument("--logs", type=Path, help="keep what the programs logged in this new directory")
    given = parser.parse_args()
    outcome = run(given.rounds, lambda text: print(text, flush=True), logs=given.logs)
    command = "python -m proof.shards " + " ".join(sys.argv[1:])
    figures = {"command": command.strip(), "on": f"{datetime.now(UTC):%Y-%m-%d}", **outcome.figures()}
    print(json.dumps(figures, indent=2))
    for number, verdict in outcome.verdicts.items():
        for line in lines(verdict):
            print(f"shard {number}: {line}")
    if given.report:
        given.report.write_text(json.dumps(figures, indent=2) + "\n")
    print("every invariant holds in every shard" if outcome.holds else "IT DOES NOT HOLD")
    sys.exit(0 if outcome.holds else 1)


if __name__ == "__main__":
    main()
