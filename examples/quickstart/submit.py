import asyncio

from tasks import send_email


async def main() -> None:
    task_id = await send_email.submit(to="ada@example.com", subject="Hello")
    print(await task_id.result(timeout=10))


asyncio.run(main())
