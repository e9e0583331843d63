"""Numbers and rules that the pages state in prose are those of the code."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import pytest

from tasklib import Breaker, Config, environment
from tasklib.backends.postgres import claims, lanes, notifier, sleep
from tasklib.cli import processes, shard
from tasklib.client import backfills, backpressure, dead_letters, flow_graphs, searching, submissions, suggesting
from tasklib.client import failures as failure_calls
from tasklib.executors import processes as executors
from tasklib.executors.outcomes import FailureKind
from tasklib.maintenance import breakers, payloads, replays, schedule_skips, snapshot, stats_reporter
from tasklib.schedules.slots import PROMPT
from tasklib.server import missing_shards, problems, sessions
from tasklib.server.dashboard import failures as failures_screen
from tasklib.server.settings import ServerSettings
from tasklib.sharding import asking, current, placement
from tasklib.store import claim, failures, levels, stats
from tasklib.tasks import durable_run, function
from tasklib.worker import limit_blocks, progress, runner, shard_slots, shard_workers, slots
from tests.backends.test_connections import IDLE
from tests.docs.pages import ROOT, all_pages

NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven"]
CLAIM, COST = "docs/explanation/claim.md", "docs/explanation/monitoring-cost.md"
FAILURES = "docs/how-to/use-the-dashboard.md"
BREAKERS, BOUNDS = "docs/how-to/stop-failing-tasks.md", "docs/how-to/bound-queues.md"
LIMITS, REPLAYS = "docs/how-to/limit-tasks.md", "docs/how-to/dead-letters.md"
SEARCHES, DURABLE = "docs/how-to/search-tasks.md", "docs/how-to/durable-functions.md"
SCHEDULES, SLOTS = "docs/how-to/schedule-tasks.md", "docs/explanation/schedules.md"
CONFIGURATION = "docs/reference/configuration.md"
POOLER = "docs/how-to/use-with-pgbouncer.md"
RUN, TIMEOUTS = "docs/how-to/run-workers.md", "docs/how-to/timeouts-and-processes.md"
SHARDS = "docs/how-to/run-shards.md"
PRIORITIES = "docs/how-to/prioritise-and-route.md"
MINUTES, TENS, HOURS = (age for _, age, _ in stats.KEPT)


def _text(page: str) -> str:
    return " ".join((ROOT / page).read_text().split())


def _last_record(benchmark: str) -> Any:
    return json.loads((ROOT / f"benchmarks/results/{benchmark}.jsonl").read_text().splitlines()[-1])


@pytest.mark.parametrize(
    ("page", "sentence", "value"),
    [
        (CLAIM, "begins at the heads again after {:g} ms", claims._LOOK_EVERY_SECONDS * 1000),
        (CLAIM, "or {} times as long as the last such claim took", claims._SHARE),
        (CLAIM, "claims of {} tasks or more", claims._MANY),
        (CLAIM, "at most {} tasks per claim", slots.BATCH),
        (CLAIM, "average less than {:g} ms", slots._SHORT_SECONDS * 1000),
        (CLAIM, "finishes in {:g} ms", slots._MOMENT_SECONDS * 1000),
        (CLAIM, "`max_prefetch` ({:,})", Config("postgresql://").max_prefetch),
        (CLAIM, "busy for more than {:g} ms", sleep.LONG_AWAKE_SECONDS * 1000),
        (SHARDS, "has not answered for {:g} second", shard_slots.SILENT_SECONDS),
        (SHARDS, "A new weight takes effect {:g} seconds later", shard.NOTICE_SECONDS),
        (SHARDS, "reads the file every {}", {1.0: "second"}[shard_workers._FILE_LOOK_SECONDS]),
        (SHARDS, "until {:g} seconds after the change", placement.SETTLING_SECONDS),
        (SHARDS, "clocks differ by less than {:g} seconds", placement.SETTLING_SECONDS / 2),
        ("docs/explanation/guarantees.md", "clocks differ by less than {:g} seconds", placement.SETTLING_SECONDS / 2),
        (SHARDS, "go to the other shards for {:g} seconds", asking.AVOIDED_SECONDS),
        (SHARDS, "left out of lists for {:g} seconds", asking.AVOIDED_SECONDS),
        (SHARDS, "read the file within a {} of a change", {1.0: "second"}[current.LOOK_SECONDS]),
        (SHARDS, "header `{}`", missing_shards.HEADER),
        (RUN, "after half a second, then after pauses that double up to {:g} seconds", processes.LONGEST_PAUSE),
        (RUN, "until it has run for a {}", {60.0: "minute"}[processes.STEADY_SECONDS]),
        (TIMEOUTS, "hasn't ended {:g} seconds later", runner._STUBBORN_SECONDS),
        (TIMEOUTS, "only the latest is written, {} a second", {0.5: "twice"}[progress._SECONDS]),
        (TIMEOUTS, "before the next start, for up to {:g} seconds", executors._LONGEST_PAUSE),
        (TIMEOUTS, "ends with an error after {} failed starts in a row", executors._MOST_FAILURES),
        (
            PRIORITIES,
            "counts as medium after {:g} minutes",
            Config("postgresql://").promote_to_medium_after_seconds / 60,
        ),
        (PRIORITIES, "counts as high after {:g} minutes", Config("postgresql://").promote_to_high_after_seconds / 60),
        (
            "docs/how-to/submit-once.md",
            "It holds for {:g} hours",
            Config("postgresql://").idempotency_window_seconds / 3600,
        ),
        (POOLER, "does not arrive within {:g} seconds", notifier._PROBE_SECONDS),
        (POOLER, "tries again every {:g} seconds", notifier._WATCHDOG_SECONDS),
        (COST, "every {:g} seconds", stats_reporter._REPORT_SECONDS),
        (COST, "over the first {:,} waiting tasks", snapshot.MOST_NAMED),
        (COST, "for up to {} names and levels", snapshot.MOST_NAMES),
        (COST, "{:g} seconds after a minute has ended", stats.ARRIVALS_GRACE_SECONDS),
        (COST, "It reads up to {:,} rows", stats.MOST_ARRIVALS),
        (COST, "in a fleet of more than {} workers", stats.MOST_WORKERS),
        (CLAIM, "Where {} or more of them are at the head", claim.CROWD),
        (CLAIM, "after a claim that took longer than {:g} ms", lanes._SLOW_SECONDS * 1000),
        (FAILURES, "the latest {:,} dead letters", failures.LOOK),
        (FAILURES, "{} running tasks and", failures.LOOK_AT_OTHERS),
        (FAILURES, "the latest {:,} failed attempts", failures.MOST_ATTEMPTS),
        (FAILURES, "up to {} tasks of a cause", failure_calls.MOST_VALUES),
        (FAILURES, "share one such report for {:g} seconds", failures_screen._KEPT_SECONDS),
        (FAILURES, "after {:g} hours, when the server stops", sessions.LIFETIME_SECONDS / 3600),
        (BREAKERS, "half of at least {} attempts fail", Breaker().at_least),
        (BREAKERS, "attempts fail within {:g} seconds", Breaker().within),
        (BREAKERS, "{:g} seconds have passed", Breaker().pause),
        (BREAKERS, "| {} run, the others wait", NUMBERS[Breaker().probes]),
        (BREAKERS, "every {:g} seconds, and the leader", stats_reporter._REPORT_SECONDS),
        (BREAKERS, "the leader judges every {:g}:", breakers.EVERY_SECONDS),
        (BREAKERS, "up to {:g} seconds after", stats_reporter._REPORT_SECONDS + breakers.EVERY_SECONDS),
        (BOUNDS, "remembers for {:g} seconds", backpressure.REMEMBERED_SECONDS),
        (BOUNDS, "Counting stops at {:,} for all queues", snapshot.MOST_COUNTED),
        (BOUNDS, "from {:g} to", backpressure._SHORTEST),
        (BOUNDS, "to {:g} seconds", backpressure._LONGEST),
        (LIMITS, "after {:g} ms, then less and less often", limit_blocks._FIRST_PAUSE * 1000),
        (LIMITS, "at least {} a second", {0.5: "twice"}[limit_blocks._LONGEST_PAUSE]),
        (REPLAYS, "The leader takes the next ones every {:g} seconds", replays.INTERVAL_SECONDS),
        (REPLAYS, "it catches up for at most {:g} seconds", 2 * replays.INTERVAL_SECONDS),
        (REPLAYS, "deleted {:g} days after its end", replays.KEPT_SECONDS / 86400),
        (SEARCHES, "the newest {:,} (", searching.LOOK),
        (SEARCHES, "({:,} if it searches errors", searching.LOOK // searching._TRACEBACKS_COST),
        (SEARCHES, "up to {:,} tasks of that flow", searching.LOOK_IN_FLOWS),
        (SEARCHES, "of states all tasks are counted, up to {}", suggesting._COUNT_STATES_UP_TO),
        (SEARCHES, "and causes the newest {:,}", suggesting.LOOK),
        (SEARCHES, "The groups cover the latest {:,} dead letters", dead_letters.LOOK),
        (COST, "on that page stop at {}", searching.COUNT_UP_TO),
        (SEARCHES, "while at most {:,} tasks wait", searching.LOOK_FOR_PENDING),
        (SEARCHES, "One call changes up to {:,} tasks", searching.MOST_AT_ONCE),
        (SCHEDULES, "More than {:,} slots are refused", backfills.BACKFILL_LIMIT),
        (SCHEDULES, "allows up to {:,}", backfills.MOST_BACKFILLED),
        (SLOTS, "none is run that is more than {:g} seconds late", PROMPT.total_seconds()),
        (SLOTS, "with its reason for {:g} days", schedule_skips.KEPT_SECONDS / 86400),
        (DURABLE, "at most {:g} kB, and comes back", durable_run.MAX_STEP_BYTES / 1024),
        (DURABLE, "After {:,} records", durable_run.MAX_STEPS),
        ("docs/how-to/poll-an-api.md", "may record {:,} steps", durable_run.MAX_STEPS),
        ("docs/how-to/flows.md", "more than {:,} results is refused", flow_graphs.MOST_IN_LIST),
        ("docs/how-to/large-payloads.md", "ids are older than {} days", NUMBERS[payloads.YOUNG.days]),
        ("docs/reference/api.md", "From {} tasks on", submissions.COPY_FROM),
        (COST, "up to {:,} tasks per queue and level", levels.MOST_COUNTED),
        (COST, "{:,} in total", levels._MOST_IN_ALL),
        (COST, "up to {:,} waiting tasks", snapshot.MOST_COUNTED),
        (COST, "every `sweep_interval_seconds` ({:g})", Config("postgresql://").sweep_interval_seconds),
        (COST, "one-minute spans for {:g} hours", MINUTES / 3600),
        (COST, "ten-minute spans for {:g} days", TENS / 86400),
        (COST, "one-hour spans for {:g} days", HOURS / 86400),
    ],
)
def test_a_number_on_a_page_is_that_of_the_code(page: str, sentence: str, value: Any) -> None:
    assert sentence.format(value) in _text(page)


def test_the_speed_in_the_readme_is_that_of_the_comparison() -> None:
    speed = re.search(r"One worker .*?runs ([\d,]+) short tasks .*?PgQueuer runs ([\d,]+)", _text("README.md"))
    assert speed
    assert re.search(
        rf"one worker, per second \| {speed[1]} \| [\d,]+ \| {speed[2]} \|", _text("docs/explanation/performance.md")
    )


def test_the_costs_of_shards_are_those_of_the_last_record() -> None:
    run, page = _last_record("shards"), (ROOT / SHARDS).read_text()
    assert f"runs {run['tasks']:,} no-op tasks" in page
    assert f"Medians of {run['rounds']} rounds" in page
    assert f"One worker with {run['slots']} slots" in page
    for each in run["by_shards"].values():
        batches = f"{each['tasks_per_claim']:.0f} | {each['tasks_per_settlement']:.0f} |"
        assert f"| {each['worker_us']:g} | {each['server_us']:g} | {batches}" in page


def test_the_speed_of_children_is_that_of_the_last_run_of_their_benchmark() -> None:
    run = _last_record("children")
    speed, start = run["median"], run["start_ms"]
    text = _text("docs/explanation/performance.md")
    assert f"takes {start['now']['p50']} ms at the median; before there was a template it took" in text
    assert f"it took {start['before']['p50']:.0f} ms" in text
    assert f"runs {speed['now']} tasks of 2 ms per second; it was {speed['before']} before" in text
    assert f"on Redis runs {speed['celery']}." in text
    assert f"TaskLib runs {speed['now, kept']} and Celery {speed['celery, kept']}." in text


def test_the_lateness_of_slots_is_that_of_the_last_run_of_their_benchmark() -> None:
    run = _last_record("schedules")
    late = run["living_leader_ms"]
    text = _text("docs/explanation/performance.md")
    assert f"With {run['schedules']:,} schedules, of which {run['schedules'] // 100:,} are due each second" in text
    assert f"committed {late['p50']:.0f} ms after the slot at the median, {late['p99']:.0f} ms at the 99th" in text
    assert (
        f"up to {run['after_its_death_ms']['most'] / 1000:.1f} s with a lease of {run['lease_ms'] / 1000:.0f} s" in text
    )
    assert run["skipped"] == run["doubled"] == 0


def test_the_versions_of_postgresql_in_the_readme_are_those_that_make_test_postgres_runs_on() -> None:
    stated = re.search(r"the tests run on (\d+), (\d+) and (\d+)\)", _text("README.md"))
    script = (ROOT / "tests/on_each_postgres.py").read_text()
    assert stated
    assert set(stated.groups()) == set(re.findall(r"EmbeddedPostgres\(version=(\d+)", script))


def test_no_page_names_a_revision_of_the_schema_which_the_next_migration_would_make_wrong() -> None:
    for page in all_pages():
        assert not re.search(r"revision \d{4}", page.text), page.name


def test_a_default_that_a_page_names_in_brackets_behind_its_setting_is_that_setting_s_default() -> None:
    defaults = {f.name: f.default for f in (*fields(ServerSettings), *fields(Config)) if f.default is not MISSING}
    wrong, checked = [], 0
    for page in all_pages():
        for name, value in re.findall(r"`(\w+)` \((-?[\d,.]*\d)\)", page.text):
            if name in defaults:
                checked += 1
                default = defaults[name]
                if isinstance(default, int | float) and float(value.replace(",", "")) != default:
                    wrong.append(f"{page.name}: {name} ({value}), by default {default:g}")
    assert not wrong
    assert checked >= 5


def test_the_limits_of_the_server_are_those_of_its_settings() -> None:
    units = {"KiB": 1024, "MiB": 1024 * 1024, "a minute": 1}
    defaults = {f.name: f.default for f in fields(ServerSettings)}
    stated = re.findall(r"(\d[\d,]*)(?: (KiB|MiB|a minute))?[a-z ]*\(`(\w+)`\)", _text("docs/how-to/run-the-server.md"))
    assert len(stated) > 20
    for number, unit, name in stated:
        assert int(number.replace(",", "")) * units.get(unit, 1) == defaults[name], name


def test_the_page_on_the_server_names_the_codes_that_say_which_limit_was_reached() -> None:
    codes = {code for code, known in problems.KNOWN.items() if "limit that `limit` names" in known.meaning}
    stated = re.search(r"With the codes (.*?), `limit` names the setting", _text("docs/how-to/run-the-server.md"))
    assert stated
    assert set(re.findall(r"`(\w+)`", stated[1])) == codes


def test_the_page_on_monitoring_has_every_metric() -> None:
    sources = "".join((ROOT / f"src/tasklib/metrics/{name}.py").read_text() for name in ("families", "flow_control"))
    made = re.findall(r"(_counter|_gauge|_summary|\w+MetricFamily)\(\s*\"(\w+)\"", sources)
    names = {name + ("_total" if kind in ("_counter", "CounterMetricFamily") else "") for kind, name in made}
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/how-to/monitor.md").read_text(), re.MULTILINE)
    assert len(names) > 30
    assert sorted(listed) == sorted(names)


def test_the_page_on_monitoring_has_a_line_for_each_alert() -> None:
    severities = re.findall(r"severity: (\w+)", (ROOT / "src/tasklib/metrics/alerts.yml").read_text())
    assert re.findall(r"\| (critical|warning) \|", _text("docs/how-to/monitor.md")) == severities


def test_the_configuration_says_which_settings_have_no_variable() -> None:
    kinds = get_type_hints(Config)
    unset = {f.name for f in fields(Config) if environment._kind(kinds[f.name]) is None} - {"retention"}
    assert Config.from_env({"TASKLIB_DATABASE_URL": "postgresql://", "TASKLIB_RETENTION": "completed=1"}).retention
    stated = re.search(r"Every setting except (.*?) can also come from the environment", _text(CONFIGURATION))
    assert stated
    assert set(re.findall(r"`(\w+)`", stated[1])) == unset


def test_the_configuration_names_each_setting_that_a_program_needs_which_only_submits() -> None:
    """Explaining a task reads settings of workers, too."""
    read = {
        name
        for package in ("client", "db")
        for path in (ROOT / "src/tasklib" / package).rglob("*.py")
        for name in re.findall(r"\bconfig\.(\w+)", path.read_text())
    }
    of_workers = {"overdue_grace_seconds", "poll_interval_seconds", "startup_timeout_seconds"}
    of_workers |= {"promote_to_medium_after_seconds", "promote_to_high_after_seconds"}
    needed = read & {f.name for f in fields(Config)} - of_workers
    stated = (
        _text(CONFIGURATION).partition("Where a setting is needed:")[2].partition("- The rest counts in workers")[0]
    )
    assert needed <= set(re.findall(r"`(\w+)`", stated))


def test_addresses_of_the_api_on_pages_exist_with_their_methods() -> None:
    document = json.loads((ROOT / "docs/reference/openapi.json").read_text())
    known = {re.sub(r"{\w+}", "*", path): {m.upper() for m in methods} for path, methods in document["paths"].items()}
    address = re.compile(r"(?:`(GET|POST|PUT|PATCH|DELETE) )?(/(?:api/v1|internal)/[\w/{}-]+)")
    for page in all_pages():
        for method, path in address.findall(page.text):
            parts = re.sub(r"{\w+}|[0-9a-f]{8}-[0-9a-f-]{27}", "*", path).rstrip("/")
            assert any(other.startswith(parts) for other in known), f"{page.name}: {path}"
            assert not method or method in known.get(parts, {method}), f"{page.name}: {method} {path}"


def test_variables_on_pages_are_read() -> None:
    read = {f"TASKLIB_{f.name.upper()}" for f in fields(Config)}
    read |= {f"TASKLIB_SERVER_{f.name.upper()}" for f in fields(ServerSettings)}
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.mjs")]
    for path in sources:
        read |= set(re.findall(r"\bTASKLIB_[A-Z_]*[A-Z]", path.read_text()))
    for page in all_pages():
        assert set(re.findall(r"\bTASKLIB_[A-Z_]*[A-Z]\b", page.text)) <= read, page.name


def test_every_finding_of_the_doctor_is_on_its_page() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src/tasklib/doctor").glob("*.py"))
    codes = set(re.findall(r"\b(?:note|warning|critical)\(\s*\"([a-z_]+)\"", sources))
    assert len(codes) > 20
    assert codes - set(re.findall(r"`([a-z_]+)`", _text("docs/how-to/diagnose.md"))) == set()


def test_the_page_on_sql_names_each_setting_of_a_function_that_its_rows_go_without() -> None:
    listed = re.search(
        r"not applied to a row that you insert yourself: (.*?)\. Nor", _text("docs/how-to/submit-from-sql.md")
    )
    assert listed
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(function._DEFAULTS)


def test_the_page_on_retries_names_each_outcome_that_a_history_can_have() -> None:
    outcomes = re.search(r"`outcome` is (.*?) marks a", _text("docs/how-to/retry-and-give-up.md"))
    assert outcomes
    assert {*FailureKind, "lost", "replayed"} == set(re.findall(r"`(\w+)`", re.sub(r"\[.*?\]", "", outcomes[1])))


def test_the_worker_for_node_has_as_many_lines_as_the_page_says() -> None:
    lines = len((ROOT / "examples/node_worker/worker.mjs").read_text().splitlines())
    assert f"in {lines} lines" in _text("docs/how-to/workers-over-http.md")


def test_the_levels_of_the_page_are_those_of_the_configuration() -> None:
    page = _text("docs/how-to/prioritise-and-route.md")
    for name, level in Config("postgresql://").levels.items():
        assert f'| `"{name}"` | {level.priority} | {level.max_retries} | {level.timeout_seconds} s |' in page


def test_the_page_states_as_many_connections_as_an_idle_worker_holds() -> None:
    """tests/backends/test_connections.py counts them."""
    stated = re.search(
        r"An idle worker keeps (\w+) connections to the database, the leader (\w+):",
        _text("docs/how-to/run-workers.md"),
    )
    assert stated
    assert [NUMBERS.index(number) for number in stated.groups()] == [len(IDLE), len(IDLE) + 1]


def test_pages_name_the_thing_instead_of_nobody_or_whoever() -> None:
    """CONTRIBUTING.md, "Style", quotes these words as examples."""
    for page in all_pages():
        if page.name not in ("CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md"):
            found = re.findall(r"\b(?:nobody|somebody|whoever)\b", page.text, re.IGNORECASE)
            assert not found, f"{page.name} says {found[0]}: name the person, program or row that is meant"
