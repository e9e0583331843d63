"""What the tests of django-tasks-db take from the package `django-tasks`: Django 6 has the same."""

from django.tasks import TaskContext, TaskResultStatus, default_task_backend, task, task_backends

__all__ = ["TaskContext", "TaskResultStatus", "default_task_backend", "task", "task_backends"]
