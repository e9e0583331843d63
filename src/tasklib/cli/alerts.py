"""`tasklib alerts` and `tasklib grafana`: print what Prometheus and Grafana are set up with."""

from __future__ import annotations

import typer


def alerts() -> None:
    """Print alert rules for Prometheus.

    Example: tasklib alerts > /etc/prometheus/rules/tasklib.yml
    """
    _print("alerts.yml")


def grafana() -> None:
    """Print a dashboard for Grafana, to be imported there.

    Example: tasklib grafana > tasklib.json
    """
    _print("grafana.json")


def _print(name: str) -> None:
    from importlib.resources import files

    typer.echo(files("tasklib.metrics").joinpath(name).read_text(encoding="utf-8"), nl=False)
