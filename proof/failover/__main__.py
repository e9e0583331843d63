"""`make failover`: both modes, every fault; the figures go to proof/results/failover.json."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from proof.failover.cluster import missing
from proof.failover.run import Result, run

RESULTS = Path(__file__).parents[1] / "results" / "failover.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mode", choices=["both", "synchronous", "asynchronous"], default="both")
    given = parser.parse_args()
    if gone := missing():
        raise SystemExit(f"not installed: {', '.join(gone)}. apt-get install etcd-server patroni haproxy postgresql-15")
    found = {}
    for mode in ("synchronous", "asynchronous"):
        if given.mode in (mode, "both"):
            print(f"{mode}:", flush=True)
            found[mode] = run(synchronous=mode == "synchronous", rounds=given.rounds, say=partial(print, flush=True))
            print(json.dumps(found[mode].figures(), indent=2), flush=True)
            keep(mode, found[mode])
    strict = found.get("synchronous")
    sys.exit(bool(strict and (strict.lost or strict.doubled)))


def keep(mode: str, result: Result) -> None:
    """Write the figures of one mode; those of the other stay."""
    RESULTS.parent.mkdir(exist_ok=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    figures = {**kept, "on": f"{datetime.now(UTC):%Y-%m-%d}", mode: result.figures()}
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
