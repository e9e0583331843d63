"""What runs on a worker."""

from tasklib import task

from shop.models import Order


@task(timeout_seconds=30)
def send_receipt(order: int) -> str:
    """Pretends to send an email. It may run twice, and does its work once."""
    found = Order.objects.get(pk=order)
    found.receipt_sent = True
    found.save(update_fields=["receipt_sent"])
    return found.email
