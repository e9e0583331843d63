"""Tasks of `django.tasks`, which Django has from 6.0 on."""

from django.db.models import F
from django.tasks import TaskContext, task

from shop.models import Order


@task
def count_receipt(order: int, *, by: int = 1) -> str:
    Order.objects.filter(pk=order).update(receipts=F("receipts") + by)
    return Order.objects.get(pk=order).email


@task(priority=-5)
async def count_receipt_async(order: int) -> str:
    await Order.objects.filter(pk=order).aupdate(receipts=F("receipts") + 1)
    return "counted"


@task(takes_context=True)
def describe(context: TaskContext) -> dict[str, object]:
    result = context.task_result
    return {"id": result.id, "attempt": context.attempt, "status": result.status, "queue": result.task.queue_name}


class OutOfInk(Exception):
    pass


@task
def print_receipt() -> None:
    raise OutOfInk("no ink\nand: no paper")


@task(backend="patient", queue_name="slow", takes_context=True)
def print_later(context: TaskContext) -> int:
    if context.attempt < 3:
        raise OutOfInk
    return context.attempt
