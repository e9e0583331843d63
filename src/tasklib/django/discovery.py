"""Importing this sets Django up and imports the `tasks.py` of every app: what a worker does first."""

from __future__ import annotations

import django
from django.apps import apps
from django.utils.module_loading import autodiscover_modules

if not apps.ready:  # in `tasklib worker tasklib.django.discovery`, and in a child process
    django.setup()
autodiscover_modules("tasks")
