"""What happened, counted, and how deep the queues were: for metrics and charts, without looking at finished rows."""

from __future__ import annotations

from tasklib.migrations.steps import run_script

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script("0005_stats")
