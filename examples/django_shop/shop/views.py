"""Placing an order."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import send_receipt


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    """The order and its task are committed together, or neither is."""
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"])
        task_id = send_receipt.submit_sync(order=order.pk)
    return JsonResponse({"order": order.pk, "task": str(task_id)}, status=201)
