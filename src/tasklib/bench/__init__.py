"""Measuring TaskLib: twelve workloads, on any PostgreSQL, in a schema of their own.

    with open_schema(config) as schema:
        results = run(schema, Plan(scale=0.1), list(WORKLOADS.values()))

What is measured is what users run: workers are `tasklib worker` processes, and tasks are submitted by a `Client`. Each
workload is a function that does it once and returns a `Sample`; the rest is repetition, medians and presentation.

Imports go one way: chart -> report -> machine, running -> workloads -> submitting, draining, waking -> rounds,
producers -> workers -> schema -> cpu. The processes that a benchmark starts run `tasks`, `child` and `producers`.
"""
