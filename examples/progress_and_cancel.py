"""A task reports its progress; another program reads it and then cancels the task.

    python examples/progress_and_cancel.py

It prints:

    running, some rows done
    asked to stop: running
    cancelled
"""

from __future__ import annotations

import asyncio

from tasklib import TaskId, Worker, current_task, task


@task
async def export(rows: int) -> None:
    for row in range(rows):
        current_task().progress({"done": row, "of": rows})
        await asyncio.sleep(0.01)


async def main() -> None:
    task_id = await export.submit(rows=100_000)
    async with Worker():
        await watch(task_id)


async def watch(task_id: TaskId[None]) -> None:
    while not (found := await task_id.get()).progress:
        await asyncio.sleep(0.05)
    print(f"{found.state}, {'some' if found.progress['done'] < 100_000 else 'all'} rows done")

    print("asked to stop:", await task_id.cancel())
    print(await task_id.wait(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
