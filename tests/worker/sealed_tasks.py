"""Sealed task functions that a child process can import."""

from __future__ import annotations

from tasklib import current_task, task


@task(name="sealed.in_process", sealed=True, executor="process", max_retries=0)
def in_process(iban: str, fail: bool = False) -> str:
    current_task().progress(iban)
    if fail:
        raise ValueError(f"{iban} is no account")
    return f"paid {iban}"


@task(name="sealed.in_thread", sealed=True, max_retries=0)
def in_thread(iban: str, fail: bool = False) -> str:
    return in_process(iban, fail)
