"""Metrics for Prometheus: the server's and each worker's, alert rules and a Grafana dashboard.

`families.py` builds the metrics, by pure functions of figures that its caller has read.
"""
