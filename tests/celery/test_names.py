"""The table of Celery's names, compared with the module and with Celery itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasklib.celery import Celery
from tasklib.celery.exceptions import ImproperlyConfigured
from tasklib.celery.settings import REFUSED, meaning

REFERENCE = Path(__file__).parents[2] / "docs/reference"


@pytest.fixture
def table(app: Celery, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(REFERENCE))
    import celery_names

    yield celery_names
    sys.modules.pop("celery_names")


def test_every_public_name_of_celery_is_there_or_refused_with_a_reason(table: Any) -> None:
    owners = table.owners()
    for section, names in table.sections().items():
        if section == "settings":
            continue
        for name in names:
            kind, text = table.verdict(owners[section], section, name)
            assert kind in ("same", "different", "no effect", "refused"), f"{section}.{name} is {kind}"
            assert text or kind == "same", f"{section}.{name} is {kind} without a reason"


def test_every_difference_is_said_of_a_name_that_celery_has(table: Any) -> None:
    known = {f"{section}.{name}" for section, names in table.sections().items() for name in names}
    assert set(table.DIFFERENT) <= known


def test_every_setting_of_celery_is_followed_without_effect_or_refused(app: Celery, table: Any) -> None:
    assert [name for name in table.sections()["settings"] if meaning(name)[0] == "unknown"] == []
    for name in REFUSED:
        with pytest.raises(ImproperlyConfigured, match=name):
            app.conf[name] = "x"


def test_the_recorded_names_are_those_of_celery(table: Any) -> None:
    celery = pytest.importorskip("celery", reason="Celery is not installed")
    if not celery.__version__.startswith("5.7."):
        pytest.skip("the names were recorded from Celery 5.7")
    assert table.of_celery() == table.sections()
