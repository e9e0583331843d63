"""Outcomes without secrets: hidden arguments that an error quotes are masked before it is stored, traced and logged."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tasklib.executors.outcomes import Cancelled, Failed, Outcome
from tasklib.tasks.masking import MASK, mask_of
from tasklib.tasks.sealing import error_type
from tasklib.worker.attempt import Attempt

E = TypeVar("E", bound=Failed | Cancelled)


def without_secrets(attempt: Attempt, outcome: E) -> E:
    """The same failure with the hidden arguments masked in its error. That of a sealed task is stored sealed, whole."""
    if attempt.seal is not None:
        return outcome
    mask = mask_of(attempt.function, attempt.claimed.kwargs)
    return outcome if mask is None else replace(outcome, error=mask(outcome.error))


def without_sealed(outcome: Outcome) -> Outcome:
    """What may be shown of how a sealed task ended: of an error its type."""
    if not isinstance(outcome, Failed | Cancelled):
        return outcome
    raised = outcome.raised if isinstance(outcome, Failed) else None
    return replace(outcome, error=f"{raised or error_type(outcome.error)}: {MASK}")
