"""The backend for `django.tasks`, where Django has it."""

from __future__ import annotations

import django
import pytest

from tests.django.manage import manage

needs_django_6 = pytest.mark.skipif(django.VERSION < (6, 0), reason="django.tasks is part of Django 6, for Python 3.12")


@needs_django_6
@pytest.mark.long
def test_tasks_of_django_run_on_tasklib(empty_database_url: str) -> None:
    manage(empty_database_url, "test", "shop.tests.test_backend", "--noinput")


@pytest.mark.skipif(django.VERSION >= (6, 0), reason="for Django 5.2")
def test_without_django_tasks_the_backend_says_what_it_needs() -> None:
    with pytest.raises(ImportError, match=r"of Django 6\.0 or newer"):
        from tasklib.django import Backend  # noqa: F401  # it is made when asked for
