"""The tasks table, its lanes, and the wake-up."""

from __future__ import annotations

from tasklib.migrations.steps import run_script

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script("0001_tasks")
