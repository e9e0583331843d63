"""The comparison with peers and with PostgreSQL's own limit: one server, one adapter per system, sides alternated.

    python -m benchmarks.peers install        # each system into an environment of its own, outside the tree
    python -m benchmarks.peers run --quick    # measure what is installed
    python -m benchmarks.peers report         # results/REPORT.md

benchmarks/README.md says what is measured, and how. Imports go one way:

    __main__ -> runner, report -> workloads, verdicts -> drain, summary -> stage, records -> server, catalogue
    -> ours, peers -> systems, lab
"""
