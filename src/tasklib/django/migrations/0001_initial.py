"""TaskLib's tables, by its own migrations: all of them, up to the newest."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from tasklib.django.models import STATES
from tasklib.django.settings import alias, config, table


def create_tables(apps: Any, schema_editor: Any) -> None:
    """Through a connection of its own. What is there already, by `tasklib migrate` or another process, stays."""
    from tasklib.migrations import migrate

    if schema_editor.connection.alias == alias():
        migrate(config())


# What Django believes the table to be, so that `makemigrations` finds nothing to do.
TASK = migrations.CreateModel(
    name="TaskRecord",
    fields=[
        ("id", models.UUIDField(primary_key=True, serialize=False)),
        ("name", models.TextField()),
        ("queue", models.TextField(default="default")),
        ("state", models.TextField(choices=STATES, default="pending")),
        ("priority", models.IntegerField(default=0)),
        ("kwargs", models.JSONField(default=dict, verbose_name="arguments")),
        ("tags", models.JSONField(default=dict)),
        ("created_at", models.DateTimeField()),
        ("scheduled_at", models.DateTimeField()),
        ("started_at", models.DateTimeField(null=True)),
        ("completed_at", models.DateTimeField(null=True, verbose_name="finished at")),
        ("next_retry_at", models.DateTimeField(null=True)),
        ("cancel_requested_at", models.DateTimeField(null=True)),
        ("worker_id", models.TextField(null=True, verbose_name="worker")),
        ("retry_count", models.IntegerField(default=0, verbose_name="retries")),
        ("max_retries", models.IntegerField(default=3)),
        ("crash_count", models.IntegerField(default=0, verbose_name="crashes")),
        ("timeout_seconds", models.IntegerField(null=True)),
        ("result", models.JSONField(null=True)),
        ("error", models.TextField(null=True)),
        ("progress", models.JSONField(null=True)),
        ("history", models.JSONField(null=True)),
        ("idempotency_key", models.TextField(null=True)),
        ("submitted_by", models.TextField(null=True)),
        ("schedule", models.TextField(null=True)),
    ],
    options={
        "db_table": table("tasks"),
        "verbose_name": "task",
        "managed": True,
        "default_permissions": ("view",),
        "permissions": [("cancel_task", "Can cancel tasks"), ("replay_task", "Can replay tasks")],
    },
)


class Migration(migrations.Migration):
    initial = True
    atomic = False  # nothing of it happens on Django's connection
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(create_tables, migrations.RunPython.noop)],
            state_operations=[TASK],
        )
    ]
