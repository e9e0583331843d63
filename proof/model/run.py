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
GATE = Path(__file__).with_name("gate.pml")
GATE_MUTANTS = {
    1: "no second look",
    2: "counting before the fence",
    3: "opening before the seal",
    4: "no sweep",
    5: "folding without the lock",
    6: "counting what another fold has counted",
    7: "arriving in another transaction than ending",
    8: "waiting for more arrivals without those that were counted before",
}
WITH_DEATHS = frozenset({4, 7})
"""The mutants that only matter where processes die. There a sweep does what a second look forgot. The model without a
mutant is not searched with deaths: it has too many states."""
AT_MOST_ONCE = frozenset({8, 9, 10, 12})
"""The mutants that only matter to tasks that run at most once."""
WAKING = Path(__file__).with_name("wake.pml")
WAKING_MUTANTS = {
    1: "a worker that sleeps without another look",
    2: "a worker that relies on producers that don't know of it",
    3: "a producer that looks for sleepers before it writes",
    4: "a worker without room that wakes no other",
    5: "a worker that leaves without waking another",
    6: "a notification forgotten that came during a look",
    7: "a notification forgotten when the announcement is withdrawn",
}


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


def check_waking(mutant: int = 0) -> Verdict:
    """The same for how tasks are found."""
    with tempfile.TemporaryDirectory() as directory:
        return compiled(directory, WAKING, {"MUTANT": mutant})


def check_gate(mutant: int = 0, *, deaths: bool = False) -> Verdict:
    """The same for the model of a gate. Without deaths there is no sweep: what is counted at once has to be all."""
    with tempfile.TemporaryDirectory() as directory:
        defines = {"MUTANT": mutant, "DEATHS": int(deaths or mutant in WITH_DEATHS)}
        return compiled(directory, GATE, defines, breadth_first=mutant > 0)


def compiled(directory: str, model: Path, defines: Mapping[str, object], *, breadth_first: bool = False) -> Verdict:
    """Compile a model with these definitions and visit its states; breadth first finds errors that are near."""
    _run(directory, "spin", *(f"-D{name}={value}" for name, value in defines.items()), "-a", str(model))
    how = ["-DBFS"] if breadth_first else []
    _run(directory, "gcc", "-O2", "-w", "-DSAFETY", *how, "-DCOLLAPSE", "-DVECTORSZ=2048", "-o", "pan", "pan.c")
    return _read(_run(directory, "./pan", *([] if breadth_first else ["-m500000"]), "-w24"))


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
    verdicts = {
        "at least once": check(),
        "at most once": check(at_most_once=True),
        "waking": check_waking(),
        "gates": check_gate(),
    }
    for semantics, sound in verdicts.items():
        print(f"the model, {semantics}: {sound.states:,} states, {sound.errors} errors {sound.violated}")
    escaped = [name for mutant, name in MUTANTS.items() if not _is_caught(check(mutant), name)]
    escaped += [name for mutant, name in WAKING_MUTANTS.items() if not _is_caught(check_waking(mutant), name)]
    escaped += [name for mutant, name in GATE_MUTANTS.items() if not _is_caught(check_gate(mutant), name)]
    if escaped or any(sound.errors or not sound.complete for sound in verdicts.values()):
        sys.exit(1)


def _is_caught(verdict: Verdict, name: str) -> bool:
    print(f"{name}: {verdict.violated or 'NOT CAUGHT'}")
    return verdict.errors > 0


if __name__ == "__main__":
    main()
