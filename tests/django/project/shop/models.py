"""What the shop sells."""

from django.db import models


class Order(models.Model):
    email = models.EmailField()
    receipts = models.IntegerField(default=0)
