"""A runaway function in a child process is killed when its time is up, and the worker goes on.

    python examples/processes.py

It prints:

    aaa: True
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab: TaskTimeout: the attempt ran longer than its timeout of 2 s
"""

from __future__ import annotations

import re

from tasklib import Worker, task
from tasklib.errors import TaskFailed


@task(executor="process", timeout_seconds=2, max_retries=0)
def match(pattern: str, text: str) -> bool:
    """Some patterns take years, in C code that can't be interrupted."""
    return re.fullmatch(pattern, text) is not None


def main() -> None:
    texts = ("aaa", "a" * 40 + "b")
    ids = [match.options(timeout_seconds=60 if text == "aaa" else 2).submit_sync("(a+)+", text) for text in texts]
    Worker(burst=True).run_sync()
    for text, task_id in zip(texts, ids, strict=True):
        try:
            print(f"{text}: {task_id.result()}")
        except TaskFailed as e:
            print(f"{text}: {e.remote_traceback}")


# A child process imports this file to find the function, and must not start a worker of its own.
if __name__ == "__main__":
    main()
