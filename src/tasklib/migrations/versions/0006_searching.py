"""Tasks that were set aside are found without looking at the others."""

from __future__ import annotations

from tasklib.migrations.steps import run_script

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script("0006_searching")
