"""Tasks in Django's admin: to search, to read, to cancel and to replay. Nothing is edited or deleted there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.utils.functional import cached_property
from django.utils.html import format_html

from tasklib.client.clients import Client
from tasklib.client.default import default_client
from tasklib.config import is_actor
from tasklib.django.models import TaskRecord
from tasklib.errors import InvalidOption, TaskLibError
from tasklib.server.redaction import Redaction
from tasklib.server.settings import ServerSettings

MOST = 10_000
"""Tasks that the list has pages for: counting millions would take longer than reading the page."""
_MOST_FOUND = 1000


class CappedPaginator(Paginator):
    """Counts no further than the list goes."""

    @cached_property
    def count(self) -> int:
        """How many there are, at most `MOST`."""
        return int(self.object_list[:MOST].count())


@admin.register(TaskRecord)
class TaskRecordAdmin(admin.ModelAdmin):
    """Who may view tasks sees them; cancelling and replaying have permissions of their own."""

    list_display = ("name", "state", "queue", "priority", "created_at", "scheduled_at", "completed_at", "last_line")
    list_filter = ("state",)
    search_fields = ("name",)
    search_help_text = "As on the dashboard: name:send_receipt state:failed args.order:7 created:<2h, or an id"
    ordering = ("-id",)  # ids are ordered by time
    paginator = CappedPaginator
    show_full_result_count = False
    actions = ("cancel", "replay")
    fieldsets = (
        (None, {"fields": ("id", "name", "state", "queue", "priority", "tags_shown")}),
        ("What it is given and returned", {"fields": ("arguments", "result_shown", "progress_shown")}),
        ("Error", {"fields": ("error_shown", "attempts")}),
        ("Times", {"fields": ("created_at", "scheduled_at", "started_at", "completed_at", "next_retry_at")}),
        ("Limits", {"fields": ("retry_count", "max_retries", "crash_count", "timeout_seconds")}),
        ("Origin", {"fields": ("worker_id", "idempotency_key", "submitted_by", "schedule", "cancel_requested_at")}),
    )

    # ---- permissions ----

    def has_add_permission(self, request: Any) -> bool:
        """Tasks are submitted by programs."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """A row is changed by guarded statements only."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """The retention rules delete tasks."""
        return False

    def has_cancel_permission(self, request: Any) -> bool:
        """For the action: tasklib.cancel_task."""
        return bool(request.user.has_perm("tasklib.cancel_task"))

    def has_replay_permission(self, request: Any) -> bool:
        """For the action: tasklib.replay_task."""
        return bool(request.user.has_perm("tasklib.replay_task"))

    # ---- the list ----

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Search as the dashboard does, by its language and its indexes."""
        if not search_term.strip():
            return queryset, False
        redaction, client = _redaction(), default_client().on_behalf_of("Django's admin")
        client.calls = client.calls.on_behalf_of(replace(client.calls.identity, secrets=redaction.pattern))
        try:
            if redaction.hidden_term(search_term) is not None:
                raise InvalidOption("this value is masked, and can't be searched here.")
            page = client.search_tasks(search_term, limit=_MOST_FOUND)
        except TaskLibError as e:
            self.message_user(request, str(e), messages.WARNING)
            return queryset.none(), False
        return queryset.filter(pk__in=[task.id for task in page.tasks]), False

    @admin.display(description="error")
    def last_line(self, task: TaskRecord) -> str:
        """The end of the traceback."""
        error = _redaction().text(task.error) or ""
        return error.rstrip().rpartition("\n")[2][:120]

    @admin.action(description="Cancel selected tasks", permissions=["cancel"])
    def cancel(self, request: Any, queryset: Any) -> None:
        """Cancel waiting tasks, and ask the workers of running ones to stop them."""
        self._each(request, queryset, lambda client, pk: client.cancel_task(pk), "cancelled, or asked to stop")

    @admin.action(description="Replay selected tasks", permissions=["replay"])
    def replay(self, request: Any, queryset: Any) -> None:
        """Run finished tasks again."""
        self._each(request, queryset, lambda client, pk: client.replay_task(pk), "replayed")

    def _each(self, request: Any, queryset: Any, change: Callable[[Client, Any], Any], done: str) -> None:
        name = request.user.get_username()
        client = default_client()
        if is_actor(name):
            client = client.on_behalf_of(name)  # the audit names who did it
        changed, refused = 0, []
        for pk in queryset.order_by("pk").values_list("pk", flat=True):
            try:
                change(client, pk)
                changed += 1
            except TaskLibError as e:
                refused.append(str(e))
        if changed:
            self.message_user(request, f"{changed} {'task was' if changed == 1 else 'tasks were'} {done}.")
        if refused:
            self.message_user(request, f"{len(refused)} left as they are: {refused[0]}", messages.WARNING)

    # ---- one task, with its secrets masked as on the dashboard ----

    @admin.display(description="arguments")
    def arguments(self, task: TaskRecord) -> str:
        return _json(task, task.kwargs)

    @admin.display(description="tags")
    def tags_shown(self, task: TaskRecord) -> str:
        return _json(task, task.tags)

    @admin.display(description="result")
    def result_shown(self, task: TaskRecord) -> str:
        return "-" if task.result is None else _json(task, task.returned)

    @admin.display(description="progress")
    def progress_shown(self, task: TaskRecord) -> str:
        return "-" if task.progress is None else _json(task, task.progress)

    @admin.display(description="error")
    def error_shown(self, task: TaskRecord) -> str:
        hidden = _redaction().result(task.result, task.error, *_others(task))[1]
        return format_html("<pre>{}</pre>", hidden) if hidden else "-"

    @admin.display(description="failed attempts")
    def attempts(self, task: TaskRecord) -> str:
        lines = [
            f"{entry.get('attempt')}: {entry.get('outcome')} {entry.get('ended_at')} by {entry.get('worker')}"
            for entry in task.history or []
        ]
        return format_html("<pre>{}</pre>", "\n".join(lines)) if lines else "-"


def _others(task: TaskRecord) -> list[Any]:
    return [task.kwargs, task.tags, task.progress]


def _json(task: TaskRecord, value: Any) -> str:
    redaction = _redaction()
    masked = redaction.masked(value, redaction.texts_in([task.result, *_others(task)]))
    shown = json.dumps(masked, indent=2, ensure_ascii=False, default=str)
    return str(format_html("<pre>{}</pre>", shown))


def _redaction() -> Redaction:
    return Redaction(ServerSettings.from_env().redact)
