"""Helpers for the tests of programs that use TaskLib.

with inline() as ran:                     # no database: submitting a task runs it here and now
    sign_up("a@example.com")
assert ran.tasks[0].result == "sent"

sign_up("a@example.com")                  # on a real database, by the pytest fixture `tasklib_app`
assert_submitted(send_email, kwargs={"to": "a@example.com"})
drained = await drain()
assert drained.counts == {"completed": 1}
"""

from tasklib.tasks.dependencies import override_dependencies
from tasklib.testing import schedules
from tasklib.testing.draining import Drained, drain, drain_sync
from tasklib.testing.inline_mode import Inline, inline
from tasklib.testing.inline_task import InlineTask
from tasklib.testing.payload_samples import read_samples
from tasklib.testing.submissions import assert_not_submitted, assert_submitted, submitted

__all__ = [
    "Drained",
    "Inline",
    "InlineTask",
    "assert_not_submitted",
    "assert_submitted",
    "drain",
    "drain_sync",
    "inline",
    "override_dependencies",
    "read_samples",
    "schedules",
    "submitted",
]
