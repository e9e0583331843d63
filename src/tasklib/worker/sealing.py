"""Opening the arguments of sealed tasks, before anything of them is called."""

from __future__ import annotations

from tasklib.config import Config
from tasklib.errors import KeyMissing, PayloadDamaged, PayloadUnreadable
from tasklib.executors.outcomes import Failed, FailureKind, Released
from tasklib.tasks.blobs import IN_STORE
from tasklib.tasks.keyring import keyring_of
from tasklib.tasks.sealing import seal_of, sealed_arguments
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
            attempt.claimed = claimed._replace(kwargs=attempt.seal.opened_arguments(claimed.kwargs))
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


def _refused(error: str, *, retriable: bool = False) -> Failed:
    kind = FailureKind.ERROR if retriable else FailureKind.REJECTED
    return Failed(error, kind, retriable=retriable, raised=error.partition(":")[0])
