"""Write the figures of docs/explanation/reliability.md and docs/how-to/high-availability.md from proof/results.

A part lies between `<!-- generated: name -->` and `<!-- generated: end -->`; the rest is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "proof" / "results"
PAGES = (ROOT / "docs" / "explanation" / "reliability.md", ROOT / "docs" / "how-to" / "high-availability.md")


_GATE_MOVES = ("opened", "failed", "restored")


def result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def chaos() -> str:
    found = result("chaos")
    executed = 10_000 * found["executed_again"] / found["tasks"]
    rows: list[list[object]] = [
        ["faults injected", f"{found['faults']:,} of {_kinds(found)} kinds"],
        ["tasks submitted", f"{found['tasks']:,}, of which {found['acknowledged']:,} acknowledged"],
        ["submissions whose outcome is unknown to the submitter", f"{found['unknown']:,}"],
        ["acknowledged and lost", found["lost"]],
        ["terminal states doubled", found["doubled"]],
        ["stale writes offered / accepted", f"{found['stale_offered']:,} / {found['stale_accepted']}"],
        [
            "writes of former leaders offered / accepted",
            f"{found['old_terms_offered']:,} / {found['old_terms_accepted']}",
        ],
        ["attempts", f"{found['attempts']:,}"],
        ["attempts that the leader ended", f"{found['rescued']:,}"],
        ["executions begun and done again, per 10,000 tasks", f"{executed:.1f}"],
        ["deadlocks", found["deadlocks"]],
        ["violations of I1 to I12", sum(found["violations"].values())],
        [
            "from the kill of a worker to the end of its attempts",
            f"p50 {found['recovery_p50']} s, p99 {found['recovery_p99']} s, max {found['recovery_max']} s "
            f"({found['recoveries']:,} attempts)",
        ],
        ["seconds", f"{found['seconds']:,}"],
    ]
    intro = f"`{found['command']}` (seed {found['seed']}), on {found['on']}:"
    return f"{intro}\n\n{table(['', ''], rows)}"


def _kinds(found: Any) -> int:
    """How many kinds of faults were injected at least once."""
    return sum(1 for times in found["faults_by_kind"].values() if times)


def faults() -> str:
    found = sorted(result("chaos")["faults_by_kind"].items())
    return table(["fault", "times"], [[kind, times] for kind, times in found if times])


def slots() -> str:
    found = result("slots")
    seen = found["slots"]
    skipped = ", ".join(f"{reason} {number:,}" for reason, number in sorted(seen["skipped"].items()))
    rows: list[list[object]] = [
        ["faults injected", f"{found['faults']:,} of {_kinds(found)} kinds in {found['seconds']:,} s"],
        ["slots", f"{seen['slots']:,}"],
        ["fired", f"{seen['fired']:,}"],
        ["on record as skipped", skipped],
        ["waiting at the end", seen["waiting"]],
        ["fired twice, or fired and on record as skipped", seen["doubled"]],
        ["neither fired nor on record", seen["missing"]],
        ["violations of any invariant", sum(found["violations"].values())],
    ]
    return f"`{found['command']}` (seed {found['seed']}), on {found['on']}:\n\n{table(['', ''], rows)}"


def flows() -> str:
    """Several runs, each with a seed of its own."""
    runs = result("flows")
    total: Callable[[str], int] = lambda key: sum(run["flows"][key] for run in runs)  # noqa: E731 - a name for a column
    rows: list[list[object]] = [
        ["faults injected", f"{sum(run['faults'] for run in runs):,} in {sum(run['seconds'] for run in runs):,} s"],
        ["flows", f"{total('flows'):,}, of {sum(run['tasks'] for run in runs):,} tasks"],
        ["gates opened / failed / judged anew after a replay", " / ".join(f"{total(k):,}" for k in _GATE_MOVES)],
        ["waiting tasks let through", f"{total('joins_released'):,}"],
        ["let through twice, too early, or never", sum(run["violations"].get("I14", 0) for run in runs)],
        ["steps recorded", f"{total('steps'):,}"],
        ["signals stored / consumed", f"{total('signals'):,} / {total('signals_consumed'):,}"],
        [
            "steps recorded twice, signals lost or consumed twice",
            sum(run["violations"].get("I15", 0) for run in runs),
        ],
        ["deadlocks", sum(run["deadlocks"] for run in runs)],
        ["violations of any invariant", sum(sum(run["violations"].values()) for run in runs)],
    ]
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return f"`python -m proof.chaos --flows N` with the seeds {seeds}, on {runs[-1]['on']}:\n\n{table(['', ''], rows)}"


def limits() -> str:
    found = result("limits")
    seen = found["limits"]
    violations: Callable[[str], int] = lambda invariant: found["violations"].get(invariant, 0)  # noqa: E731 - a short name
    rows: list[list[object]] = [
        ["faults injected", f"{found['faults']:,} of {_kinds(found)} kinds in {found['seconds']:,} s"],
        ["tasks / attempts", f"{found['tasks']:,} / {found['attempts']:,}"],
        ["starts behind `max_running`", f"{seen['bounded_starts']:,}"],
        ["of these, starts that took the last place", f"{seen['starts_at_a_full_limit']:,}"],
        ["starts over a limit", violations("I10")],
        ["starts behind a rate", f"{seen['rated_starts']:,}"],
        [
            "times a throttled attempt held a limit / starts behind it later",
            f"{seen['blocks']:,} / {seen['starts_after_a_block']:,}",
        ],
        ["starts outside of a rate, or while a limit was held", violations("I16")],
        [
            "starts with a serial key",
            f"{seen['serial_starts']:,}, in {seen['serial_pairs']:,} pairs whose order was kept",
        ],
        ["overlaps, or starts out of order", violations("I17")],
        ["times a breaker opened / starts of its probes", f"{seen['openings']:,} / {seen['probes']:,}"],
        ["other starts while a breaker was open", violations("I18")],
        ["changes of limits", f"{seen['changes']:,}"],
        ["deadlocks", found["deadlocks"]],
        ["violations of any invariant", sum(found["violations"].values())],
    ]
    return f"`{found['command']}` (seed {found['seed']}), on {found['on']}:\n\n{table(['', ''], rows)}"


def failover() -> str:
    found = result("failover")
    rows: list[list[object]] = []
    for mode in ("synchronous", "asynchronous"):
        for trial in found.get(mode, {}).get("trials", []):
            rows.append(
                [
                    mode,
                    trial["fault"],
                    f"{trial['to_the_next_submission']:.1f} s",
                    f"{trial['to_the_next_completion']:.1f} s",
                ]
            )
    head = ["replication", "fault", "until a submission is acknowledged again (RTO)", "until a task completes again"]
    return table(head, rows)


def losses() -> str:
    found = result("failover")
    modes = [mode for mode in ("synchronous", "asynchronous") if mode in found]
    rows: list[list[object]] = [
        [
            mode,
            len(found[mode]["trials"]),
            f"{found[mode]['acknowledged']:,}",
            found[mode]["unknown"],
            found[mode]["lost"],
            found[mode]["doubled"],
            found[mode]["unfinished"],
        ]
        for mode in modes
    ]
    return table(["replication", "faults", "acknowledged", "answer unknown", "lost", "doubled", "unfinished"], rows)


def peers() -> str:
    rows: list[list[object]] = [
        [
            f["fault"],
            f["system"] + ("" if f["version"] == "this checkout" else f" {f['version']}"),
            f"{f['finished']} of {f['tasks']}",
            f["begun_again"],
            f["finished_again"],
            f["left"],
            "not within 150 s" if f["seconds"] is None else f"{f['seconds']} s",
            f["workers_ended"],
        ]
        for f in result("peers")
    ]
    head = [
        "fault",
        "system",
        "tasks done",
        "begun again",
        "done twice",
        "left",
        "all done after",
        "workers that gave up",
    ]
    return table(head, rows)


def interleavings() -> str:
    found: dict[str, int] = result("interleavings")
    return (
        f"{found['two sessions']:,} orders of two sessions and {found['three sessions']:,} of three were played; "
        f"{found['wrong']} broke an invariant."
    )


def mutants() -> str:
    found: dict[str, str] = result("mutants")
    from proof.mutants.guards import guards
    from proof.mutants.run import EQUIVALENT

    caught = sum(map(bool, found.values()))
    reasons = "".join(f"\n- `{name}`: {why}" for name, why in EQUIVALENT.items() if not found.get(name))
    untried = len(guards()) - len(found)
    said = f"{caught} conditions were taken out, one at a time, and each time a test turned red."
    if untried:
        said += f" Of {untried} others that is not shown yet."
    if reasons:
        said += f" {len(found) - caught} were not tried: nothing can be seen to differ without them:\n{reasons}"
    return said


PARTS: dict[str, Callable[[], str]] = {
    "chaos": chaos,
    "faults": faults,
    "slots": slots,
    "flows": flows,
    "limits": limits,
    "failover": failover,
    "losses": losses,
    "peers": peers,
    "interleavings": interleavings,
    "mutants": mutants,
}


def with_figures(page: str) -> str:
    """The text of a page with its generated parts as the results say."""

    def part(match: re.Match[str]) -> str:
        try:
            figures = PARTS[match[1]]()
        except FileNotFoundError:
            figures = "*No run is recorded yet.*"
        return f"<!-- generated: {match[1]} -->\n{figures}\n<!-- generated: end -->"

    return re.sub(r"<!-- generated: (\w+) -->\n.*?<!-- generated: end -->", part, page, flags=re.DOTALL)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_figures(path.read_text()))
