"""The fleet: workers, leadership, pauses, and thresholds that change at run time."""

from __future__ import annotations

from tasklib.migrations.steps import run_script

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script("0002_fleet")
