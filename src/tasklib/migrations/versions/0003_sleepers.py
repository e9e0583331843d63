"""Workers say when they sleep, so that nobody is notified while nobody sleeps."""

from __future__ import annotations

from tasklib.migrations.steps import run_script

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script("0003_sleepers")
