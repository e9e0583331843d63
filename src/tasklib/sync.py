"""The module-level calls for synchronous code: `tasklib.sync.X(...)` where asynchronous code awaits `tasklib.X(...)`.

import tasklib

tasklib.init("postgresql://app@localhost/app")
task_id = tasklib.sync.submit_task(send_email, to="a@example.com")
task_id.result(timeout=10)
"""

from __future__ import annotations

from typing import Any, cast

from tasklib.client.calls import Calls
from tasklib.client.default import blocking
from tasklib.client.signatures import SyncRunSchedule, SyncSubmitMany, SyncSubmitTask, SyncWaitFor

__all__ = [
    "backfill_schedule",
    "cancel_task",
    "change_schedule",
    "create_schedule",
    "delete_schedule",
    "explain_schedule",
    "get_schedule",
    "get_task",
    "list_schedules",
    "list_tasks",
    "pause_schedule",
    "preview_schedule",
    "replay_task",
    "resume_schedule",
    "run_schedule",
    "submit_many",
    "submit_task",
    "wait_for",
]

submit_task: SyncSubmitTask = cast("Any", blocking(Calls.submit_task))
submit_many: SyncSubmitMany = cast("Any", blocking(Calls.submit_many))
wait_for: SyncWaitFor = cast("Any", blocking(Calls.wait_for))
get_task = blocking(Calls.get_task)
list_tasks = blocking(Calls.list_tasks)
cancel_task = blocking(Calls.cancel_task)
replay_task = blocking(Calls.replay_task)
create_schedule = blocking(Calls.create_schedule)
list_schedules = blocking(Calls.schedules, "list_schedules")
get_schedule = blocking(Calls.get_schedule)
change_schedule = blocking(Calls.change_schedule)
pause_schedule = blocking(Calls.pause_schedule)
resume_schedule = blocking(Calls.resume_schedule)
run_schedule: SyncRunSchedule = cast("Any", blocking(Calls.run_schedule))
delete_schedule = blocking(Calls.delete_schedule)
backfill_schedule = blocking(Calls.backfill_schedule)
preview_schedule = blocking(Calls.preview_schedule)
explain_schedule = blocking(Calls.explain_schedule)
