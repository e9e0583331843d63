"""The figures on the pages about reliability are those of the recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.figures import PAGES, with_figures


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_figures_are_those_of_the_recorded_runs(page: Path) -> None:
    assert page.read_text() == with_figures(page.read_text()), "run: python -m proof.figures"
