"""Queries: pure functions that turn arguments into a `Query`."""
