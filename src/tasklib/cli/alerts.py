"""`tasklib alerts` and `tasklib grafana`: print what Prometheus and Grafana are set up with."""

from __future__ import annotations

import typer


def alerts() -> None:
    """Print alert rules for Prometheus, to be saved as one of its `rule_files`.

    Example: tasklib alerts
    """
    _print("alerts.yml")


def grafana() -> None:
    """Print a dashboard for Grafana as JSON, to be imported there.

    Example: tasklib grafana
    """
    _print("grafana.json")


def _print(name: str) -> None:
    from importlib.resources import files

    typer.echo(files("tasklib.metrics").joinpath(name).read_text(encoding="utf-8"), nl=False)
