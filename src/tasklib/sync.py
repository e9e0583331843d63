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
from tasklib.client.signatures import SyncSubmitMany, SyncSubmitTask, SyncWaitFor

__all__ = ["cancel_task", "get_task", "list_tasks", "replay_task", "submit_many", "submit_task", "wait_for"]

submit_task: SyncSubmitTask = cast("Any", blocking(Calls.submit_task))
submit_many: SyncSubmitMany = cast("Any", blocking(Calls.submit_many))
wait_for: SyncWaitFor = cast("Any", blocking(Calls.wait_for))
get_task = blocking(Calls.get_task)
list_tasks = blocking(Calls.list_tasks)
cancel_task = blocking(Calls.cancel_task)
replay_task = blocking(Calls.replay_task)
