"""Approvals: a durable function asks, people answer once, and an answer that doesn't fit is asked for again."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from typing import Annotated, Any

import psycopg
import pytest
from pydantic import BaseModel, Field, field_validator

from tasklib import (
    ApprovalNotOpen,
    AsyncClient,
    Config,
    InvalidOption,
    continue_as_new,
    step,
    sync,
    task,
    wait_for_approval,
    wait_for_signal,
)
from tasklib.tasks import registry
from tests.worker.test_durable import client, row, skip_time
from tests.worker.watching import burst

__all__ = ["client"]


class Payment(BaseModel):
    account: Annotated[str, Field(min_length=4, title="Account")]
    amount: Annotated[int, Field(ge=1)] = 100

    @field_validator("account")
    @classmethod
    def known(cls, account: str) -> str:
        if account.startswith("XX"):
            raise ValueError("no such country")
        return account


@pytest.fixture(autouse=True)
def registered() -> None:
    registry.register(pay)


@task(durable=True)
async def pay(amount: int) -> Any:
    decision = await wait_for_approval(
        "pay-out",
        form=Payment,
        title=f"Pay {amount}?",
        details={"to": "ACME", "by": "May"},
        timeout=dt.timedelta(days=7),
    )
    if not decision:
        return ["rejected", decision.by, decision.comment]
    return [decision.form.account, decision.form.amount, decision.by, decision.comment]


async def test_an_approval_waits_without_a_slot_and_gives_the_answer_in_its_type(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    task_id = await client.submit_task(pay, amount=5)
    await burst(config)
    [asked] = await client.approvals()
    assert (asked.task_id, asked.task, asked.name, asked.title) == (task_id, "pay", "pay-out", "Pay 5?")
    assert (asked.details, asked.role, asked.refused) == ({"to": "ACME", "by": "May"}, "approver", None)
    assert list(asked.details) == ["to", "by"]
    assert asked.form is not None
    assert list(asked.form["properties"]) == ["account", "amount"]
    assert asked.expires_at is not None
    assert asked.expires_at > asked.asked_at + dt.timedelta(days=6)

    await client.approve(task_id, form={"account": "DE02"}, comment="fine")
    assert await client.approvals() == []
    await burst(config)
    found = await row(client, task_id)
    assert found.result == ["DE02", 100, client.calls.identity.actor, "fine"]
    records = db.execute("SELECT action, target, details FROM audit").fetchall()
    said = {"approval": "pay-out", "approved": True, "comment": "fine"}
    assert records == [("task.answer", str(task_id), said)]


async def test_an_approval_is_answered_once(config: Config, client: AsyncClient, db: psycopg.Connection) -> None:
    task_id = await client.submit_task(pay, amount=5)
    with pytest.raises(ApprovalNotOpen, match="has not asked yet"):
        await client.reject(task_id)
    await burst(config)
    approval = await client.approval(task_id)
    await client.reject(task_id, "pay-out", comment="a duplicate")
    for _ in range(2):
        with pytest.raises(ApprovalNotOpen):
            await client.answer(approval, approved=True, form={"account": "DE02"}, comment="")
        await burst(config)
    assert (await row(client, task_id)).result == ["rejected", client.calls.identity.actor, "a duplicate"]
    assert db.execute("SELECT count(*) FROM signals").fetchone() == (1,)
    assert db.execute("SELECT count(*) FROM audit").fetchone() == (1,)


async def test_what_doesnt_fit_the_form_is_refused_before_it_is_sent(config: Config, client: AsyncClient) -> None:
    task_id = await client.submit_task(pay, amount=5)
    await burst(config)
    for form, said in [
        (None, "object of its fields"),
        ({}, "account: missing"),
        ({"account": "DE0"}, "account: at least 4 characters"),
        ({"account": "DE02", "amount": 0}, "amount: at least 1"),
        ({"account": "DE02", "amount": "7"}, "amount: a whole number"),
        ({"account": "DE02", "iban": "x"}, "iban: there is no such field"),
    ]:
        with pytest.raises(InvalidOption, match=said):
            await client.approve(task_id, form=form)
    await client.approve(task_id, form=Payment(account="DE02", amount=3))
    await burst(config)
    assert (await row(client, task_id)).result[:2] == ["DE02", 3]


async def test_an_answer_that_only_the_function_can_refuse_is_asked_for_again(
    config: Config, client: AsyncClient
) -> None:
    task_id = await client.submit_task(pay, amount=5)
    await burst(config)
    await client.approve(task_id, form={"account": "XX99"})
    await burst(config)
    [again] = await client.approvals(task_id=task_id)
    assert again.name == "pay-out#2"
    assert again.refused == "account: Value error, no such country"
    await client.approve(task_id, form={"account": "DE02"})
    await burst(config)
    assert (await row(client, task_id)).result[0] == "DE02"


async def test_an_approval_without_an_answer_times_out_and_is_closed(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    task_id = await client.submit_task(pay, amount=5)
    await burst(config)
    approval = await client.approval(task_id)
    db.execute("UPDATE tasks SET max_retries = 0")
    skip_time(db)
    await burst(config)
    found = await row(client, task_id)
    assert found.state == "dead_letter"
    assert found.error is not None
    assert "TimeoutError: no answer to the approval 'pay-out' came in time" in found.error
    assert await client.approvals() == []
    with pytest.raises(ApprovalNotOpen):
        await client.answer(approval, approved=False, form=None, comment="")


async def test_a_question_that_is_asked_anew_needs_an_answer_of_its_own(config: Config, client: AsyncClient) -> None:
    @task(durable=True)
    async def again(number: int = 1) -> list[object]:
        decision = await wait_for_approval("go", title=f"Round {number}?")
        if number == 1 and decision:
            continue_as_new(number=2)
        return [number, decision.approved]

    task_id = await client.submit_task(again)
    await burst(config)
    first = await client.approval(task_id)
    await client.approve(task_id)
    await burst(config)
    await burst(config)
    second = await client.approval(task_id, "go")
    assert second.title == "Round 2?"
    with pytest.raises(ApprovalNotOpen):  # one who still has the first before them
        await client.answer(first, approved=True, form=None, comment="")
    await client.reject(task_id)
    await burst(config)
    assert (await row(client, task_id)).result == [2, False]


async def test_an_answer_that_comes_with_the_timeout_counts_or_is_refused_but_is_never_lost(
    config: Config, client: AsyncClient, db: psycopg.Connection
) -> None:
    """The answer is sent first: then it counts, though the time is over before the task looks."""
    task_id = await client.submit_task(pay, amount=5)
    await burst(config)
    await client.reject(task_id)
    skip_time(db)
    await burst(config)
    assert (await row(client, task_id)).result[0] == "rejected"


async def test_sync_functions_ask_too_and_two_branches_are_told_apart(config: Config, client: AsyncClient) -> None:
    @dataclass
    class Choice:
        color: str

    @task(durable=True)
    def ask() -> list[str]:
        return [sync.wait_for_approval("color", form=Choice, key=part).form.color for part in ("wall", "door")]

    task_id = await client.submit_task(ask)
    await burst(config)
    await client.approve(task_id, "color[wall]", form=Choice("red"))
    await burst(config)
    await client.approve(task_id, form={"color": "blue"})
    await burst(config)
    assert (await row(client, task_id)).result == ["red", "blue"]


async def test_several_open_approvals_of_a_task_need_a_name(config: Config, client: AsyncClient) -> None:
    @task(durable=True)
    async def both() -> list[bool]:
        return [bool(each) for each in await asyncio.gather(wait_for_approval("a"), wait_for_approval("b"))]

    task_id = await client.submit_task(both)
    await burst(config)
    with pytest.raises(InvalidOption, match="waits for 2 approvals: say which of 'a', 'b'"):
        await client.approve(task_id)
    await client.approve(task_id, "b")
    await client.reject(task_id, "a")
    await burst(config)
    assert (await row(client, task_id)).result == [False, True]


async def test_sql_answers_approvals(config: Config, client: AsyncClient, db: psycopg.Connection) -> None:
    task_id = await client.submit_task(pay, amount=5)
    answer = "SELECT tasklib_answer(%s, %s, true, form => %s, sent_by => 'ann')"
    assert db.execute(answer, [task_id, "pay-out", None]).fetchone() == ("not_asked",)
    await burst(config)
    form = '{"account": "DE02"}'
    assert db.execute(answer, [task_id, "pay-out", form]).fetchone() == ("sent",)
    assert db.execute(answer, [task_id, "pay-out", form]).fetchone() == ("closed",)
    await burst(config)
    assert (await row(client, task_id)).result == ["DE02", 100, "ann", ""]
    assert db.execute(answer, [task_id, "pay-out", form]).fetchone() == ("closed",)
    missing = "00000000-0000-7000-8000-000000000000"
    assert db.execute(answer, [missing, "pay-out", form]).fetchone() == (None,)


async def test_a_signal_is_no_answer(config: Config, client: AsyncClient) -> None:
    task_id = await client.submit_task(pay, amount=5)
    with pytest.raises(InvalidOption, match="approve or reject"):
        await client.signal(task_id, "approval:pay-out", {"approved": True})

    @task(durable=True, max_retries=0)
    async def waits() -> None:
        await wait_for_signal("approval:pay-out")

    waiting = await client.submit_task(waits)
    await burst(config)
    assert "use wait_for_approval()" in ((await row(client, waiting)).error or "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"role": "boss"}, 'is "approver", "operator" or "admin"'),
        ({"title": "x" * 501}, "at most 500 characters"),
        ({"form": int}, "a class with fields"),
        ({"details": object()}, "can't be stored"),
    ],
)
async def test_what_cant_be_asked_is_refused(
    config: Config, client: AsyncClient, options: dict[str, Any], said: str
) -> None:
    @task(durable=True, max_retries=0)
    async def asks() -> None:
        await step("before", lambda: None)
        await wait_for_approval("x", **options)

    task_id = await client.submit_task(asks)
    await burst(config)
    assert said in ((await row(client, task_id)).error or "")
