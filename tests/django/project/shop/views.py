"""Placing an order."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from shop.models import Order
from shop.tasks import send_receipt


def place(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"])
        task_id = send_receipt.submit_sync(order=order.pk)
    return JsonResponse({"order": order.pk, "task": str(task_id)})


async def place_async(request: HttpRequest) -> JsonResponse:
    order = await Order.objects.acreate(email=request.POST["email"])
    task_id = await send_receipt.submit(order=order.pk)
    return JsonResponse({"order": order.pk, "task": str(task_id)})
