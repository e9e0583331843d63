"""The task functions of the image."""

from tasklib import task


@task(schedule="*/5 * * * *")
def tidy_up() -> str:
    return "tidy"
