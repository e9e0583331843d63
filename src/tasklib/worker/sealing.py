"""Opening the arguments of sealed tasks, before anything of them is called."""

from __future__ import annotations

import json
from dataclasses import replace

from tasklib.columns import SEALED_FROM, SEALED_MARK
from tasklib.config import Config
from tasklib.errors import KeyMissing, PayloadDamaged, PayloadUnreadable
from tasklib.executors.outcomes import Failed, FailureKind, Released
from tasklib.tasks.blobs import IN_STORE
from tasklib.tasks.keyring import keyring_of
from tasklib.tasks.sealed_records import SealedRecords
from tasklib.tasks.sealed_results import OWNED, filled, is_owned
from tasklib.tasks.sealing import Sealing, TaskSeal, seal_of, sealed_arguments
from tasklib.worker.attempt import Attempt

MARKED = '{"$'
"""What arguments begin with that are sealed as a whole, or in a payload store. Those with Sealed[...] fields are known
by the function."""


ERASED = '{"$erased"'
"""What arguments begin with that were erased; such a task can only be replayed in vain."""


def open_arguments(attempt: Attempt, config: Config) -> None:
    """Give the attempt clear arguments, or the reason why it can't have them: it becomes a dead letter at once."""
    claimed, sealing = attempt.claimed, attempt.function.sealing
    if claimed.kwargs.startswith(IN_STORE):
        attempt.unread, attempt.refusal = True, Released("its arguments were not read yet")
        return
    if claimed.kwargs.startswith(ERASED):
        attempt.refusal = _refused("PayloadUnreadable: the arguments of this task were erased.")
        return
    sealed = sealed_arguments(claimed.kwargs)
    try:
        if sealed is not None:
            ring, compresses = keyring_of(config), attempt.function.compress
            attempt.seal = seal_of(ring, claimed.id, claimed.name, sealed, compresses=compresses)
            attempt.claimed = claimed._replace(kwargs=_opened(attempt, attempt.seal, sealed))
        elif OWNED in claimed.kwargs and (name := _owned_argument(claimed.kwargs)) is not None:
            attempt.refusal = _refused(
                f"InvalidOption: {name} of {claimed.name} is the result of a sealed task, and {claimed.name} is not "
                "sealed. Write @task(sealed=True) above it."
            )
        elif sealing is not None and not sealing.accepts_clear:
            attempt.refusal = _refused(
                f"PayloadDamaged: {claimed.name} takes sealed arguments, and those of this task are clear: it was "
                "inserted by SQL, or submitted before the function was sealed. @task(sealed='new') takes both."
            )
    except PayloadUnreadable as e:  # no fault of the task's: another worker may read it
        attempt.seal, attempt.refusal = None, Released(str(e))
    except (KeyMissing, PayloadDamaged) as e:
        attempt.seal = None
        # A key may come; what was damaged stays so.
        attempt.refusal = _refused(f"{type(e).__name__}: {e}", retriable=isinstance(e, KeyMissing))


def _opened(attempt: Attempt, seal: TaskSeal, sealed: str) -> str:
    own, beside = seal.open("kwargs", sealed), json.loads(attempt.claimed.kwargs)
    del beside[SEALED_MARK]
    if not beside and SEALED_FROM not in own:  # as most
        return own
    return filled(seal, json.loads(own), beside, attempt.function.sealing)


def _owned_argument(text: str) -> str | None:
    """The name of an argument that is the result of a sealed task, or has one in it."""
    for name, value in json.loads(text).items():
        if is_owned(value) or (isinstance(value, list) and any(map(is_owned, value))):
            return str(name)
    return None


def sealed_records(attempt: Attempt) -> SealedRecords | None:
    """What seals and opens the steps of a durable task; None if they are clear."""
    if attempt.seal is None:
        return None
    sealing = attempt.function.sealing
    return SealedRecords(attempt.seal, accepts_clear=sealing is None or sealing.accepts_clear)


def continuing(attempt: Attempt, arguments: str | None) -> str | None:
    """The arguments with which a durable task begins anew, as they are stored."""
    if arguments is None or attempt.seal is None:
        return arguments
    # Not compressed: the task may be one that workers without the library can take.
    return replace(attempt.seal, compresses=False).arguments(arguments, attempt.function.sealing or Sealing(None))


def _refused(error: str, *, retriable: bool = False) -> Failed:
    kind = FailureKind.ERROR if retriable else FailureKind.REJECTED
    return Failed(error, kind, retriable=retriable, raised=error.partition(":")[0])
