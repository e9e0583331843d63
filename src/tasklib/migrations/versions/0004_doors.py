"""Who may come in over HTTP, who did what, and whose task it is."""

from __future__ import annotations

from tasklib.migrations.steps import run_script

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script("0004_doors")
