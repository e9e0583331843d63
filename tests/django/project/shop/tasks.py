"""The tasks of the shop."""

import asyncio
import os

import django
from django.db import connection, connections, transaction
from django.db.models import F

from shop.models import Order
from tasklib import current_task, task


@task
def send_receipt(order: int) -> str:
    Order.objects.filter(pk=order).update(receipts=F("receipts") + 1)
    return Order.objects.get(pk=order).email


@task
async def send_receipt_async(order: int) -> str:
    await Order.objects.filter(pk=order).aupdate(receipts=F("receipts") + 1)
    return (await Order.objects.aget(pk=order)).email


@task(executor="process")
def send_receipt_in_child(order: int) -> dict[str, object]:
    Order.objects.filter(pk=order).update(receipts=F("receipts") + 1)
    return {"pid": os.getpid(), "settings": os.environ["DJANGO_SETTINGS_MODULE"]}


@task
def place_and_send(email: str) -> int:
    with transaction.atomic():
        order = Order.objects.create(email=email)
        send_receipt.submit_sync(order=order.pk)
    return order.pk


@task(durable=True)
def remind(order: int) -> str:
    return Order.objects.get(pk=order).email


@task
def fail(message: str) -> None:
    raise ValueError(message)


@task
def backend_pid() -> int:
    """Which session of PostgreSQL Django has in this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@task
def leave_broken() -> str:
    """Leaves Django's connection of this thread in a state that only closing it ends."""
    connection.ensure_connection()
    connection.connection.close()
    connection.errors_occurred = True
    return current_task().name


@task
async def wait_for_each_other(others: int) -> int:
    """Returns how many threads Django's ORM works in, for so many tasks at a time."""
    from asgiref.sync import sync_to_async

    pids.add(await sync_to_async(_pid)())
    if len(pids) == others:
        all_there.set()
    await all_there.wait()
    return len(pids)


pids: set[int] = set()
all_there = asyncio.Event()


def _pid() -> int:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


if django.VERSION >= (6, 0):
    from shop.django_tasks import *  # noqa: F403  # so that a worker finds them
