"""Check the model, and that each mutant of it is caught: `make model`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("task.pml")
MUTANTS = {
    1: "settling without the token",
    2: "a token that starts anew",
    3: "rescue by id, chosen beforehand",
    4: "a claim that doesn't look again",
    5: "a leader that doesn't check its term",
    6: "a lost lease taken back",
    7: "cancelling what is finished",
    8: "a call that is not on record",
    9: "giving back what runs at most once and has begun",
    10: "releasing what runs at most once and has begun",
    11: "poison whose last attempt never began",
    12: "a beginning recorded without the token",
}
AT_MOST_ONCE = frozenset({8, 9, 10, 12})
"""The mutants that only matter to tasks that run at most once."""


@dataclass(frozen=True)
class Verdict:
    """What Spin found."""

    errors: int
    states: int
    complete: bool
    """True if every state was visited."""
    violated: str
    """The first property that doesn't hold, if any."""


def check(mutant: int = 0, *, retries: int = 1, lost: int = 2, at_most_once: bool = False) -> Verdict:
    """Visit every state of the model, or as many as it takes to find an error."""
    once = str(at_most_once or mutant in AT_MOST_ONCE).lower()
    defines = {"MUTANT": mutant, "MAX_RETRIES": retries, "MAX_LOST": lost, "ONCE": once}
    with tempfile.TemporaryDirectory() as directory:
        return compiled(directory, MODEL, defines)


def compiled(directory: str, model: Path, defines: Mapping[str, object]) -> Verdict:
    """Compile a model with these definitions and visit its states."""
    _run(directory, "spin", *(f"-D{name}={value}" for name, value in defines.items()), "-a", str(model))
    _run(directory, "gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-o", "pan", "pan.c")
    return _read(_run(directory, "./pan", "-m500000", "-w24"))


def _run(directory: str, *command: str) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _read(said: str) -> Verdict:
    lines = said.splitlines()
    [summary] = [line for line in lines if "errors:" in line]
    [states] = [line for line in lines if line.strip().endswith("states, stored")]
    violated = next((line for line in lines if "violated" in line or "invalid end state" in line), "")
    incomplete = any("max search depth too small" in line or "out of memory" in line for line in lines)
    return Verdict(int(summary.split("errors:")[1]), int(states.split()[0]), not incomplete, violated.strip())


def main() -> None:
    if not shutil.which("spin") or not shutil.which("gcc"):
        raise SystemExit("the model needs spin and gcc: apt-get install spin gcc libc6-dev")
    verdicts = {"at least once": check(), "at most once": check(at_most_once=True)}
    for semantics, sound in verdicts.items():
        print(f"the model, {semantics}: {sound.states:,} states, {sound.errors} errors {sound.violated}")
    escaped = [name for mutant, name in MUTANTS.items() if not _is_caught(mutant, name)]
    if escaped or any(sound.errors or not sound.complete for sound in verdicts.values()):
        sys.exit(1)


def _is_caught(mutant: int, name: str) -> bool:
    verdict = check(mutant)
    print(f"{name}: {verdict.violated or 'NOT CAUGHT'}")
    return verdict.errors > 0


if __name__ == "__main__":
    main()
