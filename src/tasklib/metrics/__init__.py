"""Metrics for Prometheus: the server's and each worker's, alert rules and a Grafana dashboard.

`families.py` says which metrics there are, by pure functions of what was read; whoever serves them reads.
"""
