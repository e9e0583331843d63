"""Requests and answers of the worker protocol, docs/reference/worker-protocol.md; backends/postgres does the work."""
