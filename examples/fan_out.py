"""A task that submits others, in one batch, and another program that gathers their results.

    python examples/fan_out.py

It prints:

    3 pages, 12 words
"""

from __future__ import annotations

import asyncio

from tasklib import TaskId, Worker, submit_many, task

PAGES = {"one": "the quick brown fox", "two": "jumps over the lazy", "three": "dog and is gone"}


@task
async def count_words(page: str) -> int:
    return len(PAGES[page].split())


@task
async def count_book(pages: list[str]) -> list[TaskId[int]]:
    """Don't wait in a task for tasks: it would hold a slot that they may need. Return their ids."""
    return await submit_many(count_words, [{"page": page} for page in pages])


async def main() -> None:
    book = await count_book.submit(pages=list(PAGES))
    await Worker(burst=True).run()
    parts = await book.result(timeout=10)
    counts = [await part.result(timeout=10) for part in parts]
    print(f"{len(counts)} pages, {sum(counts)} words")


if __name__ == "__main__":
    asyncio.run(main())
