"""What a worker's child processes import: tasks that report to a Sentry which writes to a file."""

from __future__ import annotations

import os
from typing import Any

import sentry_sdk
from sentry_sdk.transport import Transport

from tasklib import task
from tasklib.sentry import TaskLibIntegration


class ToFile(Transport):
    """Appends each envelope to the file that a variable names."""

    def capture_envelope(self, envelope: Any) -> None:
        with open(os.environ["TASKLIB_TEST_SENTRY_FILE"], "ab") as file:
            file.write(envelope.serialize() + b"\n")


if "TASKLIB_TEST_SENTRY_FILE" in os.environ:
    sentry_sdk.init("https://key@sentry.invalid/1", transport=ToFile, integrations=[TaskLibIntegration()])


@task(executor="process", max_retries=0)
def fail_in_a_child() -> None:
    raise ValueError("in a child")
