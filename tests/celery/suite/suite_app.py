"""The app of Celery's integration tests: what `celery worker` is given there, `tasklib worker` is given here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from t.integration.tasks import ClassBasedAutoRetryTask

from tasklib.celery import Celery


class SuiteApp(Celery):
    # Celery's tests ask whether the result backend can run chords. Here it needs none.
    backend: Any = SimpleNamespace(ensure_chords_allowed=lambda: None)


app = SuiteApp("suite", broker="redis://", backend="redis://", include=["t.integration.tasks"])
app.set_current()
app.set_default()
app.register_task(ClassBasedAutoRetryTask())
