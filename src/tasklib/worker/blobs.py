"""Payloads of attempts that are in a payload store: arguments are read before the call, long results put after it."""

from __future__ import annotations

import time

from tasklib.client.blobs import not_stored
from tasklib.config import Config, PayloadStore
from tasklib.db.reconnecting import backoff
from tasklib.errors import PayloadDamaged, PayloadUnreadable
from tasklib.executors.outcomes import Done, DoneAndStored, Failed, FailureKind, Released
from tasklib.tasks import blobs
from tasklib.tasks.sealed_results import OWNED
from tasklib.worker.attempt import Attempt
from tasklib.worker.sealing import MARKED, open_arguments

_TRIES = 3


def read_arguments(attempt: Attempt, config: Config) -> None:
    """Give the attempt all its arguments. A store that fails is no failure of the task's: it goes back as it was."""
    claimed = attempt.claimed
    attempt.unread, attempt.refusal = False, None
    try:
        attempt.claimed = claimed._replace(kwargs=blobs.resolved_arguments(config, claimed.kwargs))
    except PayloadDamaged as e:
        error = f"{type(e).__name__}: {e}"
        attempt.refusal = Failed(error, FailureKind.REJECTED, retriable=False, raised=type(e).__name__)
    except PayloadUnreadable as e:
        attempt.refusal = Released(str(e))
    except Exception as e:  # the store's own
        attempt.refusal = Released(f"the payload store failed: {type(e).__name__}: {e}")
    else:
        kwargs = attempt.claimed.kwargs
        if attempt.function.sealing is not None or kwargs.startswith(MARKED) or OWNED in kwargs:
            open_arguments(attempt, config)


def put_result(attempt: Attempt, outcome: Done, store: PayloadStore, config: Config) -> Done:
    """Put a long result into the store. If the store fails, it stays in the table: the work is done."""
    if not blobs.is_long(config, outcome.result):
        return outcome
    attempt.deadline = None  # the function has ended in time
    claimed = attempt.claimed
    text = outcome.result if attempt.seal is None else attempt.seal.result(outcome.result)
    return DoneAndStored(
        stored_or_kept(store, claimed.id, claimed.name, text, compress=attempt.function.compress and not attempt.seal)
    )


def stored_or_kept(store: PayloadStore, task_id: str, name: str, text: str, *, compress: bool) -> str:
    """A long result, or that of a step: put into the store and a pointer, or the text itself if the store fails."""
    for tries in range(_TRIES):
        try:
            return blobs.stored_result(store, task_id, text, compress=compress)
        except Exception as e:
            error = e
            time.sleep(backoff(tries))
    not_stored(name, error)
    return text
