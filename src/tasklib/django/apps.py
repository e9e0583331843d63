"""The app: connects TaskLib with Django when Django starts. Nothing here opens a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.core import checks
from django.db import connections

from tasklib.tasks.default_client import provide_default_client
from tasklib.tasks.surroundings import at_thread_end, prepare_children, surround_attempts

if TYPE_CHECKING:
    from tasklib.django.clients import DjangoClient


class TaskLibConfig(AppConfig):
    """`INSTALLED_APPS = [..., "tasklib.django"]`."""

    name = "tasklib.django"
    label = "tasklib"
    verbose_name = "TaskLib"

    def ready(self) -> None:
        """Use Django's connection for the module-level calls, and look after connections around tasks."""
        from tasklib.django.checks import check_database
        from tasklib.django.children import names_of_databases
        from tasklib.django.connections import look_after_connections

        provide_default_client(_client)
        surround_attempts(look_after_connections)
        at_thread_end(connections.close_all)
        prepare_children("tasklib.django.children", names_of_databases)
        checks.register(check_database)


def _client() -> DjangoClient:
    # Imported here: most commands of manage.py submit nothing.
    from tasklib.django.clients import DjangoClient

    return DjangoClient()
