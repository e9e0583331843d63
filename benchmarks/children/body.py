"""The body of the tasks that are measured. It runs under any version of TaskLib, and under Celery."""

from __future__ import annotations

import os
import struct
import time

SECONDS = 0.002
MARK = struct.Struct("!dd")


def nap_and_mark() -> None:
    """Sleep, then write down when it began and ended, by a clock that all processes of a machine share."""
    began = time.monotonic()
    time.sleep(SECONDS)
    file = os.open(os.environ["CHILDREN_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, MARK.pack(began, time.monotonic()))
    os.close(file)
