"""Failed tasks are retried; a task that can't succeed becomes a dead letter, and can be replayed after a fix.

    python examples/retries.py

It prints:

    attempt 1: the bank is closed
    attempt 2: the bank asks for patience
    attempt 3: paid
    dead_letter: order 9 has no address
    completed: order 9 is shipped
"""

from __future__ import annotations

import asyncio

from tasklib import Reject, Retry, RetryPolicy, Worker, current_task, replay_task, task

addresses = {7: "Main Street 1"}


@task(max_retries=3, retry_policy=RetryPolicy(base_seconds=0.05))
async def charge(order: int) -> None:
    match current_task().attempt:
        case 1:
            print("attempt 1: the bank is closed")
            raise ConnectionError("the bank is closed")  # the policy says how long to wait
        case 2:
            print("attempt 2: the bank asks for patience")
            raise Retry(in_=0.1)  # the task says so itself
        case attempt:
            print(f"attempt {attempt}: paid")


@task
async def ship(order: int) -> str:
    if order not in addresses:
        raise Reject(f"order {order} has no address")  # another attempt would be of no use
    return f"order {order} is shipped"


async def main() -> None:
    async with Worker():
        await pay_and_ship()


async def pay_and_ship() -> None:
    await (await charge.submit(order=7)).result(timeout=10)

    task_id = await ship.submit(order=9)
    state = await task_id.wait(timeout=10)
    print(f"{state}: {(await task_id.get()).error.splitlines()[-1].partition(': ')[2]}")

    addresses[9] = "Side Street 2"
    await replay_task(task_id)
    result = await task_id.result(timeout=10)
    print(f"{(await task_id.get()).state}: {result}")


if __name__ == "__main__":
    asyncio.run(main())
