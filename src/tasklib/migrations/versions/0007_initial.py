"""All tables of TaskLib: tasks, workers, what operators set, stats, tokens and the audit."""

from __future__ import annotations

from tasklib.migrations.steps import run_script

revision = "0007"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script("0007_initial")
