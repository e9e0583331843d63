import asyncio

from tasklib import wait_for

from tasks import send_email


async def main() -> None:
    task_id = await send_email.submit(to="ada@example.com", subject="Hello")
    print(await wait_for(task_id, timeout=10))


asyncio.run(main())
